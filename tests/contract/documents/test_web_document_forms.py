"""No form of a URI reaches a place that is closed: the table of forms, against listeners.

Each form names a host on this machine, or hides such a host in a URI of an allowed one. It is tried
where only another host is allowed, and where its own host and port are allowed, so that nothing but
the check of its address stands in the way.
"""

import random
import ssl
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest
from pyreqwest.http import Url

import docllm.agent.documents.web
from docllm.agent.documents.address import resolve
from docllm.schemas.task.allowed_uris import allowed, require_prefix
from tests.contract.support.document_servers import HOST, forbidden, refusal, web

# Ways to write 127.0.0.1, ::1 and other addresses of this machine, as programs have read them.
LOCAL_HOSTS = """
    127.0.0.1 127.1 127.0.1 127.1.2.3 127.000.000.001 0127.0.0.1 0177.0.0.1 0177.0.0.01 0177.1
    017700000001 0000177.0.0.1 0x7f.1 0x7f.0.0.1 0x7f.0x0.0x0.0x1 0x7f000001 0X7F000001 0x7F.1
    0x0000007f.1 2130706433 2130706433. 4294967295 0
    0.0.0.0 00 0x0 0.0 127.0.0.1. 127.1. 0x7f.1. 127.0.0.1..
    127.65535 127.0.65535 0x7f.65535 127.0.0.0x1 127.0.0.01 127.0x0.0.1 127.00.00.1 0127.1
    1.127.0.0.1 127.0.0.1.1 256.0.0.1 127.0.0.257 383.0.0.1 639.0.0.1 -127.0.0.1 +127.0.0.1
    [::1] [::] [0:0:0:0:0:0:0:1] [0000:0000:0000:0000:0000:0000:0000:0001] [::01] [0::1] [::0001]
    [::ffff:127.0.0.1] [::ffff:7f00:1] [::FFFF:127.0.0.1] [0:0:0:0:0:ffff:7f00:1] [::127.0.0.1]
    [::7f00:1] [::ffff:0:127.0.0.1] [64:ff9b::7f00:1] [64:ff9b::127.0.0.1] [2002:7f00:1::]
    [2002:7f00:1::1] [2001:0:7f00:1::] [fe80::1] [fe80::1%lo] [fe80::1%25lo] [::1%lo] [::1%25lo]
    [::1%251] [fec0::1] [fc00::1] [ff02::1] [::ffff:0.0.0.0] [::ffff:127.1] [::ffff:2130706433]
    [127.0.0.1] [::1]. [::1].. [::1 ::1] [::1]] [[::1]] ::1 ::ffff:127.0.0.1 [v1.127.0.0.1]
    localhost LOCALHOST LocalHost localhost. localhost.. .localhost localhost.localdomain
    ip6-localhost ip6-loopback localhost6 broadcasthost a.localhost foo.localhost.
    localhost%00 localhost%00.com 127.0.0.1%00.com 127.0.0.1%20 %31%32%37.0.0.1 127%2e0%2e0%2e1
    127.0.0.1%2f 127.0.0.1%23 127.0.0.1%3f 127.0.0.1%5c %6c%6f%63%61%6c%68%6f%73%74 local%68ost
    \u2460\u2461\u2466.0.0.1 127\u30020\u30020\u30021 127\uff0e0\uff0e0\uff0e1
    127\uff610\uff610\uff611
    \uff11\uff12\uff17.\uff10.\uff10.\uff11 \u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3
    \uff4c\uff4f\uff43\uff41\uff4c\uff48\uff4f\uff53\uff54 loc\u00adalhost loc\u200balhost
    loc\u2060alhost \u017focalhost l\u043ecalhost localho\u017ft xn--localhost- xn--127-0-0-1
    127.0.0.1\u0000 localhost\u3002 127.0.0.1\u2024 0\u05657f.1 \u0661\u0662\u0667.0.0.1
""".split()

# Ways to put a host behind, or before, that of an allowed URI. {l} is a local host with its port.
HIDDEN = [
    "https://{a}@{l}/docs/a",
    "https://{a}:x@{l}/docs/a",
    "https://u:p@{l}/docs/a",
    "https://@{l}/docs/a",
    "https://:@{l}/docs/a",
    "https://{a}%40{l}/docs/a",
    "https://{a}%2f@{l}/docs/a",
    "https://{a}/@{l}/../docs/a",
    "https://{a}\\@{l}/docs/a",
    "https://{a}\\.{l}/docs/a",
    "https://{l}\\@{a}/docs/a",
    "https://{l}\\{a}/docs/a",
    "https://{l}#@{a}/docs/a",
    "https://{l}?@{a}/docs/a",
    "https://{l}/#@{a}/docs/a",
    "https://{l};@{a}/docs/a",
    "https://{l}%23@{a}/docs/a",
    "https://{l}%00@{a}/docs/a",
    "https://{l}\t@{a}/docs/a",
    "https://{l}\r\n@{a}/docs/a",
    "https://{a}\t@{l}/docs/a",
    "https://{a}\n@{l}/docs/a",
    "https://{a}\r\nHost: {l}\r\n\r\n/docs/a",
    "https://{a}#@{l}/docs/a",
    "https://{a}?@{l}/docs/a",
    "https://{a};{l}/docs/a",
    "https://{a},{l}/docs/a",
    "https://{a}&@{l}/docs/a",
    "https://{a} @{l}/docs/a",
    "https://{a}@{l}@{a}/docs/a",
    "https://{l}@{a}@{l}/docs/a",
    "https:{l}/docs/a",
    "https:/{l}/docs/a",
    "https:///{l}/docs/a",
    "https:////{l}/docs/a",
    "https:\\\\{l}\\docs\\a",
    "https:\\{l}/docs/a",
    "https:/\\{l}/docs/a",
    "https:\\/{l}/docs/a",
    "//{l}/docs/a",
    "\\\\{l}\\docs\\a",
    " https://{l}/docs/a",
    "\thttps://{l}/docs/a",
    "\x00https://{l}/docs/a",
    "ht\ntps://{l}/docs/a",
    "https\t://{l}/docs/a",
    "HTTPS://{l}/docs/a",
    "url:https://{l}/docs/a",
    "view-source:https://{l}/docs/a",
    "https+unix://{l}/docs/a",
    "http://{l}/docs/a",
    "HTTP://{l}/docs/a",
    "hTTp:\\\\{l}/docs/a",
    "ftp://{l}/docs/a",
    "ws://{l}/docs/a",
    "wss://{l}/docs/a",
    "gopher://{l}/_GET%20/docs/a",
    "dict://{l}/docs/a",
    "ldap://{l}/docs/a",
    "tftp://{l}/docs/a",
    "jar:https://{l}/a!/docs/a",
    "data://{l}/docs/a",
    "blob:https://{l}/docs/a",
    "javascript://{l}/%0adocs",
    "https://{l}/docs/../../a",
    "https://[{a}]@{l}/docs/a",
    "https://{a}]@{l}/docs/a",
    "https://{a}:443@{l}/docs/a",
    "https://{a}:@{l}/docs/a",
    "https://{l}:443@{a}/docs/a",
    "https://{l}\u2044@{a}/docs/a",
    "https://{a}\uff0f@{l}/docs/a",
    "https://{a}\uff03@{l}/docs/a",
    "https://{a}\uff1f@{l}/docs/a",
    "https://{a}\uff20{l}/docs/a",
    "https://{a}\u2100{l}/docs/a",
    "https://{a}/docs\\..\\..\\@{l}/a",
    "https://{a}.{l}/docs/a",
    "https://{l}.{a}/docs/a",
]
LOCAL_IN_HIDDEN = ("127.0.0.1", "localhost", "[::1]", "2130706433")


def _forms(port: int, allowed_host: str) -> Iterator[str]:
    for host in LOCAL_HOSTS:
        yield f"https://{host}:{port}/docs/a"
        yield f"https://{quote(host, safe=':[]%.')}:{port}/docs/a"
    for form in HIDDEN:
        for local in LOCAL_IN_HIDDEN:
            yield form.format(a=allowed_host, l=f"{local}:{port}")


def _own(uri: str, port: int) -> list[str]:
    """Return prefixes that allow a form's own host, if a setting can, and what it stands for."""
    meant = [f"https://{host}:{port}/" for host in ("127.0.0.1", "[::1]", "0.0.0.0")]  # noqa: S104
    try:
        return [require_prefix(f"https://{urlsplit(uri).netloc}/"), *meant]
    except ValueError:
        return meant


async def test_no_form_reaches_a_closed_place(certificate: ssl.SSLContext) -> None:
    """No form connects to a listener of this machine, whatever is allowed by name."""
    tried = own = 0
    async with forbidden() as listener:
        allowed_host = f"{HOST}:{listener.port}"
        for uri in dict.fromkeys(_forms(listener.port, allowed_host)):
            for allow in ([f"https://{allowed_host}/docs/"], _own(uri, listener.port)):
                error_class, _text = await refusal(web(allow, _system, private=()), uri)
                assert (uri, error_class) in {
                    (uri, "DOCUMENT_REFUSED"),
                    (uri, "DOCUMENT_UNREADABLE"),  # no such host
                }
                assert (uri, listener.hits) == (uri, 0)
                tried += 1
                own += len(allow) > 3

    assert tried > 900
    assert own > 100


async def _system(host: str, port: int) -> list[str]:
    """Resolve as the system does, but hosts that no machine has without asking a name server."""
    is_local = "localhost" in host.lower() or not any(letter.isalpha() for letter in host)
    if is_local or host.lower().startswith(("0x", "::", "[", "ip6-")):
        return await resolve(host, port)
    raise OSError("no such host")


async def test_the_table_finds_a_missing_check(
    certificate: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the check of addresses, the same forms reach the listeners."""
    monkeypatch.setattr(docllm.agent.documents.web, "is_allowed", lambda _address, _private: True)
    reached = set()
    async with forbidden() as listener:
        for host in LOCAL_HOSTS:
            uri, before = f"https://{host}:{listener.port}/docs/a", listener.hits
            allow = _own(uri, listener.port)
            await refusal(web(allow, _system, private=(), timeout_s=3.0), uri)
            if listener.hits > before:
                reached.add(host)

    assert reached >= {"localhost", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.0.0.1"}
    assert len(reached) > 20


PIECES = r"""
    https:// docs.example.com /a/b/ .. / %2e %2f %5c \ @ : 443 # ? ; a x %25 %252e . [ ] %00 // | ^
    ` { < 127.0.0.1 % & = ! $ \' ( * , +
""".split()


def test_what_is_sent_is_what_was_checked() -> None:
    """The HTTP client reads any allowed URI as the check does: same host, same folder."""
    draw = random.Random(3)  # noqa: S311 - not a secret
    prefix, checked = "https://docs.example.com/a/b/", 0
    for _ in range(20_000):
        uri = prefix + "".join(draw.choice(PIECES) for _ in range(draw.randint(1, 7)))
        if draw.random() < 0.3:
            place = draw.randrange(len(uri))
            uri = uri[:place] + draw.choice(PIECES) + uri[place:]
        if allowed(uri, [prefix]):
            url = Url(uri)
            sent = (url.scheme, url.host_str, url.port_or_known_default, url.username, url.password)
            assert (uri, *sent) == (uri, "https", "docs.example.com", 443, "", None)
            assert (uri, url.path[:5], allowed(str(url), [prefix])) == (uri, "/a/b/", True)
            checked += 1
    assert checked > 2000

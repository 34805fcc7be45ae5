"""Addresses from which documents may come."""

import asyncio
import random
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
import uvloop

from docllm.agent.documents.address import address_of, is_allowed, is_public, resolve

PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700::1", "2001:4860:4860::8888"]
# Each holds or stands for an address that is not public, or belongs to no host of the internet.
NOT_PUBLIC = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1
    127.255.255.254 168.63.129.16 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255
    192.0.0.1 192.0.0.8 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255
    198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
    :: ::1 ::7f00:1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::ffff:0:127.0.0.1
    64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::8.8.8.8 64:ff9b:1::1 100::1 2001::1
    2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:20::1 2001:db8::1
    2002:7f00:1:: 2002:a9fe:a9fe::1 2002:808:808::1 3fff::1 5f00::1 fc00::1 fd00:ec2::254
    fe80::1 fe80::a9fe:a9fe fec0::1 ff02::1 ff0e::1 2606:4700::5efe:7f00:1 4000::1
    2606:4700::200:5efe:10.0.0.1 a000::1
""".split()


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_is_open(text: str) -> None:
    """Documents may come from an address of the internet."""
    assert is_allowed(text, ())


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_another_address_is_closed(text: str) -> None:
    """Nothing comes from an address of this machine, this network, or in disguise."""
    assert not is_allowed(text, ())


@pytest.mark.parametrize(
    "text", ["fe80::1%eth0", "8.8.8.8%1", "localhost", "", "8.8.8", "2130706433"]
)
def test_what_is_no_whole_address_is_closed(text: str) -> None:
    """An address with a zone is one of this machine's links; short forms are no addresses."""
    assert address_of(text) is None
    assert not is_allowed(text, [ip_network("0.0.0.0/0"), ip_network("::/0")])


def test_a_network_that_is_named_is_open() -> None:
    """Only the named network is open, and none that embeds its addresses."""
    private = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]

    assert [is_allowed(text, private) for text in ("10.1.2.3", "fd00::1")] == [True, True]
    others = ("127.0.0.1", "192.168.0.1", "fe80::1", "::ffff:10.1.2.3", "64:ff9b::a01:203")
    assert [text for text in others if is_allowed(text, private)] == []


def test_no_ipv6_address_hides_an_ipv4_address() -> None:
    """For any IPv4 address, no known way to embed it gives a public address."""
    draw = random.Random(7)  # noqa: S311 - not a secret
    for _ in range(2000):
        inner = IPv4Address(draw.getrandbits(32))
        low = int(inner)
        forms = [
            low,
            0xFFFF << 32 | low,
            0xFFFF << 48 | low,
            0x64FF9B << 96 | low,
            0x64FF9B0001 << 80 | low,
            0x2002 << 112 | low << 80 | draw.getrandbits(80),
            0x20010000 << 96 | draw.getrandbits(64) << 32 | low ^ 0xFFFFFFFF,
            0x2606470000000000 << 64 | 0x5EFE << 32 | low,
            0x2606470000000000 << 64 | 0x02005EFE << 32 | low,
        ]
        assert [str(IPv6Address(form)) for form in forms if is_public(IPv6Address(form))] == []


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_host_is_resolved_to_all_its_addresses(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The system's resolver names each address once; a host that does not exist is an OSError."""
    with asyncio.Runner(loop_factory=loop) as runner:
        assert "127.0.0.1" in runner.run(resolve("localhost", 443))
        assert runner.run(resolve("127.0.0.1", 443)) == ["127.0.0.1"]
        assert runner.run(resolve("::1", 443)) == ["::1"]
        with pytest.raises(OSError, match=r"."):
            runner.run(resolve("nothing.invalid", 443))


def test_the_zone_of_an_address_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address with a zone, which leads to one of this machine's links, stays recognizable."""

    async def found(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", ("fe80::1", 443, 0, 3)), (0, 0, 0, "", ("fe80::2%lo", 443, 0, 1))]

    async def zoned() -> list[str]:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
        return await resolve("h", 443)

    assert asyncio.run(zoned()) == ["fe80::1%3", "fe80::2%lo"]

"""What may follow `?` in the URL of a MySQL ledger.

Other tools write options there that docllm does not need or always applies; such options are
accepted and dropped. No message holds a value.
"""

import re
from urllib.parse import parse_qsl, urlencode

from docllm.schemas.text.wording import did_you_mean

# PyMySQL takes more options, and some of them would silently turn TLS off: it reads the text
# "false" in ssl_disabled=false as true.
_PASSED = (
    "ssl_ca",
    "ssl_capath",
    "ssl_cert",
    "ssl_key",
    "ssl_cipher",
    "ssl_check_hostname",
    "unix_socket",
)
_TRUE = {"true", "1"}
# Options of other tools that ask for what docllm does in any case, each with the values that do.
_IN_ANY_CASE = {
    "charset": {"utf8mb4", "utf8"},
    "use_unicode": _TRUE,
    "binary_prefix": _TRUE,
    "parsetime": _TRUE,
    "loc": {"utc"},
}
# Options that would be silently ignored, though they are meant to protect the connection.
_TLS = {
    "ssl",
    "ssl-ca",
    "ssl-mode",
    "ssl_disabled",
    "ssl_mode",
    "ssl_verify_cert",
    "ssl_verify_identity",
    "requiressl",
    "sslca",
    "sslmode",
    "tls",
    "usessl",
}
_NAME = re.compile(r"[A-Za-z][A-Za-z_.-]{0,39}")


def read_options(text: str) -> str:
    """Return the options that the driver gets. Raises ValueError, which names a wrong option."""
    options = dict(parse_qsl(text, keep_blank_values=True))
    for name, value in options.items():
        if name not in _PASSED:
            _require_needless(name, value)
    passed = {name: value for name, value in options.items() if name in _PASSED}
    names_authority = "ssl_ca" in passed or "ssl_capath" in passed
    if any(name.startswith("ssl_") for name in passed) and not names_authority:
        raise ValueError(
            "without ssl_ca=FILE after '?' any server would be trusted; "
            "name the file with the authority's certificate"
        )
    if passed.get("ssl_check_hostname", "true") not in {"true", "false"}:
        raise ValueError("write ssl_check_hostname=true or ssl_check_hostname=false")
    return text if passed == options else urlencode(passed, safe="/:")


def _require_needless(name: str, value: str) -> None:
    """Raise ValueError unless docllm does in any case what this option asks for."""
    folded = name.lower()
    # A text of another form may be part of a password.
    shown = name if _NAME.fullmatch(name) else "an option"
    if folded in _TLS:
        raise ValueError(
            f"{shown} after '?' is no option of docllm; write ssl_ca=FILE, the authority's "
            "certificate: then the connection is encrypted and the server verified"
        )
    values = _IN_ANY_CASE.get(folded)
    if values is None:
        known = f"known are: {', '.join(_PASSED)}"
        hint = did_you_mean(folded, [*_PASSED, *_IN_ANY_CASE], known)
        raise ValueError(f"{shown} after '?' is unknown; {hint}; correct or remove it")
    if value.lower() not in values:
        raise ValueError(
            f"{shown} after '?' can only be {' or '.join(sorted(values))}; remove it, "
            "because docllm sets it itself"
        )

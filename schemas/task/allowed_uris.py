"""Decides whether a URI lies below one of the prefixes that an operator allows.

The same rule holds for documents that are fetched and for results that are written. It knows the
form of URIs only: what a host's name resolves to is checked where the connection is made.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

SCHEMES = ("s3", "gs", "az", "https", "file")
FORM = 's3://BUCKET/FOLDER/, gs://, az://, https://HOST/ or file:///FOLDER/, with a "/" at the end'
_VISIBLE = re.compile(r"[!-~]+")  # `urlsplit` would drop line ends and tabs
_DEFAULT_PORT = {"https": 443}
_DECODINGS = 4  # some servers decode a path more than once


@dataclass(frozen=True, slots=True)
class UriParts:
    """A URI that every parser reads in the same way, as decoded parts.

    They are compared exactly. `authority` is the host with its port, or the bucket.
    """

    scheme: str
    authority: str
    segments: tuple[str, ...]


def allowed(uri: str, prefixes: Iterable[str]) -> bool:
    """Return whether a URI lies below a prefix: same scheme and authority, and whole segments.

    A URI that different programs could read in different ways lies nowhere.
    """
    try:
        parts = uri_parts(uri)
        return any(_is_below(parts, uri_parts(prefix)) for prefix in prefixes)
    except ValueError:
        return False


def require_prefix(value: str) -> str:
    """Return a prefix as `allowed` takes it. Raises ValueError, which does not quote the value."""
    try:
        parts = uri_parts(value)
    except ValueError as error:
        raise ValueError(f"{error}; write {FORM}") from None
    if not value.endswith("/") or "?" in value:
        raise ValueError(f"write {FORM}")
    if parts.scheme == "file" and parts.segments == ("",):
        raise ValueError("the folder / is all files of the machine; name a folder in it")
    return value


def folder_uri(value: str) -> str:
    """Return the URI of a folder that is named by its path or by a URI of a folder or a store.

    Raises ValueError, which does not quote the value.
    """
    if "://" not in value:
        return require_prefix(f"{Path(value).expanduser().absolute().as_uri()}/")
    prefix = require_prefix(value if value.endswith("/") else f"{value}/")
    if prefix.startswith("https:"):
        raise ValueError("files are written to folders, or to s3://, gs:// or az://")
    return prefix


def uri_parts(uri: str) -> UriParts:
    """Return the parts of a URI. Raises ValueError, which does not quote it."""
    if _VISIBLE.fullmatch(uri) is None or "\\" in uri:
        raise ValueError("a URI has no blanks, backslashes and letters outside ASCII")
    try:
        split = urlsplit(uri)
    except ValueError:  # its text quotes the URI
        raise ValueError("a URI has a host in the right form") from None
    if split.scheme not in SCHEMES or not uri.startswith(f"{split.scheme}://"):
        raise ValueError(f"a URI begins with one of {', '.join(f'{name}://' for name in SCHEMES)}")
    if "@" in split.netloc:
        raise ValueError("a URI has no user and no password")
    if "#" in uri or ("?" in uri and split.scheme != "https"):
        raise ValueError("a URI has no fragment, and a query with https:// only")
    return UriParts(split.scheme, _authority(split.scheme, split.netloc), _segments(split.path))


def _authority(scheme: str, netloc: str) -> str:
    if scheme == "file":
        if netloc:
            raise ValueError("a file has no host; write file:///")
        return ""
    if not netloc or "%" in netloc:
        raise ValueError("a URI names its host or bucket, without %")
    if scheme not in _DEFAULT_PORT:
        return netloc
    host = netloc.lower()
    return host.removesuffix(f":{_DEFAULT_PORT[scheme]}").removesuffix(":")


def _segments(path: str) -> tuple[str, ...]:
    segments = []
    for part in path.removeprefix("/").split("/"):
        segment = unquote(part, errors="surrogateescape")
        deepest = segment
        for _ in range(_DECODINGS):
            deepest = unquote(deepest, errors="surrogateescape")
        if deepest.partition(";")[0] in {".", ".."} or re.search(r"[/\\\x00-\x1f\x7f]", deepest):
            raise ValueError("a path has no part that leads elsewhere, such as .. or %2f")
        segments.append(segment)
    return tuple(segments)


def _is_below(uri: UriParts, prefix: UriParts) -> bool:
    start = prefix.segments[:-1]  # the last one is empty: a prefix ends with a slash
    return (
        (uri.scheme, uri.authority) == (prefix.scheme, prefix.authority)
        and len(uri.segments) > len(start)
        and uri.segments[: len(start)] == start
    )

"""The address of an object: `s3://BUCKET/KEY`, `gs://BUCKET/KEY` or `az://CONTAINER/KEY`.

A key is percent-encoded in its URI, as the path of a file is.
"""

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote

from docllm.schemas.task.allowed_uris import uri_parts

SCHEMES = ("s3", "gs", "az")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_KEPT = "/!$&'()*+,;=:@~-._"  # characters of a path that need no encoding


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """Where an object lies. With an empty key, or one that ends with `/`, it is a prefix."""

    scheme: str
    bucket: str
    key: str

    @classmethod
    def of(cls, uri: str) -> Self:
        """Return the address that a URI names. Raises ValueError, which does not quote it."""
        parts = uri_parts(uri)
        if parts.scheme not in SCHEMES:
            raise ValueError("an object's URI begins with s3://, gs:// or az://")
        if _BUCKET.fullmatch(parts.authority) is None:
            raise ValueError("a bucket's name has letters, digits, dots, dashes and underscores")
        if "" in parts.segments[:-1]:
            raise ValueError("a key has no empty part between two slashes")
        key = "/".join(parts.segments)
        if any("\ud800" <= letter <= "\udfff" for letter in key):
            raise ValueError("a key is UTF-8")
        return cls(parts.scheme, parts.authority, key)

    @property
    def uri(self) -> str:
        """The URI of the object."""
        return f"{self.scheme}://{self.bucket}/{quote(self.key, safe=_KEPT)}"


def is_object_uri(text: str) -> bool:
    """Return whether a text begins as the URI of an object or of a prefix."""
    return text.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))

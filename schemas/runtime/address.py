"""Addresses on which programs listen."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Self

_FORM = re.compile(r"(?:\[([0-9A-Fa-f:.]++)\]|([^\s:/\[\]]++)):(\d{1,5})")
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A host, by name or number, and a port. Port 0 lets the system choose."""

    host: str
    port: int

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the address that a text such as `127.0.0.1:9464` or `[::1]:9464` names.

        Raises ValueError with the right form.
        """
        match = _FORM.fullmatch(text)
        if match is None or int(match[3]) > _MAX_PORT:
            raise ValueError("write HOST:PORT, for example 127.0.0.1:9464")
        return cls(match[1] or match[2], int(match[3]))

    def __str__(self) -> str:
        """Return the form in which a person writes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

"""Decides which addresses documents may come from: public ones and allowed networks.

The standard library's `is_global` is not enough: it accepts addresses that embed another address
(mapped, NAT64, 6to4, Teredo, ISATAP), and cloud metadata addresses that answer only from inside
that cloud.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

IPAddress = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

_UNICAST = IPv6Network("2000::/3")  # the only IPv6 range from which internet hosts get addresses
_NEVER: tuple[Network, ...] = tuple(
    map(
        ip_network,
        (
            "100.64.0.0/10",  # shared by customers of a provider; metadata of a cloud
            "168.63.129.16/32",  # metadata of a cloud
            "192.0.0.0/24",  # protocols; metadata of a cloud
            "192.88.99.0/24",  # relays of 6to4
            "2001::/23",  # protocols, among them Teredo
            "2001:db8::/32",  # examples
            "2002::/16",  # 6to4
            "3fff::/20",  # examples
        ),
    )
)
_ISATAP = 0x5EFE  # with either value of the bit that marks the address in it as unique
_UNIQUE_BIT = 0x0200_0000


def is_public(address: IPAddress) -> bool:
    """Return whether an address belongs to one host of the internet and has no other in it."""
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if any(address in network for network in _NEVER):
        return False
    return isinstance(address, IPv4Address) or (address in _UNICAST and not _is_isatap(address))


def _is_isatap(address: IPv6Address) -> bool:
    middle = (int(address) >> 32) & 0xFFFF_FFFF
    return middle & ~_UNIQUE_BIT == _ISATAP


def address_of(text: str) -> IPAddress | None:
    """Parse an address; return None for any other text and for an address with a zone."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    is_zoned = isinstance(address, IPv6Address) and address.scope_id is not None
    return None if is_zoned else address


def is_allowed(text: str, private: Sequence[Network]) -> bool:
    """Return whether documents may come from an address: a public one, or one in `private`."""
    address = address_of(text)
    if address is None:
        return False
    return is_public(address) or any(address in network for network in private)


async def resolve(host: str, port: int) -> list[str]:
    """Return all addresses of a host, in the order in which the system would try them.

    Raises OSError.
    """
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_text(info[4]) for info in infos))


def _text(socket_address: tuple[object, ...]) -> str:
    """Return the text of a socket's address, with its zone if it has one."""
    host = str(socket_address[0])
    zone = socket_address[3] if len(socket_address) > 3 else 0  # noqa: PLR2004 - four parts in IPv6
    return f"{host}%{zone}" if zone and "%" not in host else host

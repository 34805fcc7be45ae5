"""Doors: ways to servers that can be cut, blocked, slowed down or torn.

They carry bytes and know no protocol. A `Door` is one listening address and the server behind it.
It counts its effects, so that a fault which met nobody can be recognized. Everything in here runs
on the event loop of `proxy`.
"""

import asyncio
import socket
import struct
from collections import Counter, deque
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import cast

MAX_HELD_BYTES = 4 << 20  # of one connection; then its sender has to wait
NOW = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


class Mode(Enum):
    """The faults of a door."""

    OPEN = "open"
    CUT = "cut"  # connections are reset, including new ones
    HOLE = "hole"  # nothing arrives any more, and nobody is notified
    SLOW = "slow"  # everything arrives late and in small pieces
    TEAR = "tear"  # now and then half a message, then a reset


@dataclass(slots=True)
class Counts:
    """A door's counts since its mode was set."""

    connections: int = 0  # accepted connections
    carried: int = 0  # bytes
    refused: int = 0  # connections that were reset at once
    failed: int = 0  # connections that the server did not accept
    cut: int = 0  # connections that the door ended
    held: int = 0  # bytes held back
    delayed: int = 0  # bytes that arrived late
    torn: int = 0  # messages of which only half was carried

    def told(self) -> dict[str, int]:
        """Return the counts that are not zero."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name)
        }


@dataclass(frozen=True, slots=True)
class LinkFault:
    """A mode and its figures.

    For SLOW these are the delay of each chunk and the rate, for TEAR the number of chunks between
    two torn ones.
    """

    mode: Mode = Mode.OPEN
    delay_s: float = 0.0
    bytes_per_s: float = float("inf")
    tear_every: int = 0


@dataclass(eq=False)
class Door:
    """A way to one server."""

    name: str
    port: int
    server_port: int
    wrong: LinkFault = LinkFault()
    counts: Counts = field(default_factory=Counts)
    # The counts from before its mode was set.
    earlier: Counter[str] = field(default_factory=Counter)
    pairs: set["Pair"] = field(default_factory=set)
    # Chunks in either direction of all connections together, because one may be too short to be
    # torn.
    chunks: int = 0

    def set(self, wrong: LinkFault, *, reset: bool = False) -> Counts:
        """Change the mode; return the counts until now.

        With `reset`, connections whose bytes were held end, as after a lost NAT entry.
        """
        before, self.counts, self.wrong = self.counts, Counts(), wrong
        self.earlier.update(before.told())
        for pair in list(self.pairs):
            if wrong.mode is Mode.CUT or pair.left or (reset and pair.holds):
                self.counts.cut += 1
                pair.end()
            else:
                pair.flow()
        return before

    def ever(self) -> dict[str, int]:
        """Return all counts since the door was opened, in any mode."""
        return self.earlier + Counter(self.counts.told())


class Pair:
    """A client's connection and the one to the server."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.client = _End(self)
        self.server = _End(self)
        self.client.other, self.server.other = self.server, self.client
        door.pairs.add(self)

    @property
    def holds(self) -> bool:
        return self.client.held_bytes + self.server.held_bytes > 0

    @property
    def left(self) -> bool:
        """Return whether the client left with bytes held, which are then not delivered any more."""
        return self.client.over and self.client.held_bytes > 0

    def taken(self) -> None:
        """Handle a new client: connect to the server, or refuse it."""
        self.door.counts.connections += 1
        if self.door.wrong.mode is Mode.CUT:
            self.door.counts.refused += 1
            self.end()
        else:
            self._dialing = asyncio.get_running_loop().create_task(self._dial())

    def flow(self) -> None:
        """Carry all bytes that the mode allows now."""
        for end in (self.client, self.server):
            end.flow()

    def end(self) -> None:
        """Reset both connections."""
        self.door.pairs.discard(self)
        for end in (self.client, self.server):
            end.abort()

    async def _dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: self.server, "127.0.0.1", self.door.server_port
            )
        except OSError:
            self.door.counts.failed += 1
            self.end()


class _End(asyncio.Protocol):
    """One of the two connections; the bytes it reads are written to the other."""

    other: "_End"

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._transport: asyncio.Transport | None = None
        self._held: deque[bytes] = deque()
        self.held_bytes = 0
        self._free_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self is self._pair.client:
            self._pair.taken()
        self.other.flow()

    def data_received(self, data: bytes) -> None:
        self._held.append(data)
        self.held_bytes += len(data)
        if self.held_bytes > MAX_HELD_BYTES and self._transport is not None:
            self._transport.pause_reading()
        counts, mode = self._pair.door.counts, self._pair.door.wrong.mode
        if mode is Mode.HOLE:
            counts.held += len(data)
        elif mode is Mode.SLOW:
            counts.delayed += len(data)
        self.flow()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.over = True
        # The end of a connection behind a hole is not visible on the other side.
        if self._pair.door.wrong.mode is not Mode.HOLE:
            self.flow()

    def flow(self) -> None:
        """Carry the bytes read, as the door's mode allows."""
        wrong = self._pair.door.wrong
        out = self.other._transport
        if out is None or wrong.mode is Mode.HOLE or out.is_closing():
            return
        if wrong.mode is Mode.SLOW and self._held:
            self._drip(wrong)
            return
        while self._held and not out.is_closing():
            self._carry(self._take(), out, wrong)
        self._finish(out)

    def _finish(self, out: asyncio.Transport) -> None:
        if self.over and not out.is_closing():
            self._pair.door.pairs.discard(self._pair)
            out.close()

    def abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, NOW
            )
            self._transport.abort()

    def _take(self) -> bytes:
        data = self._held.popleft()
        self.held_bytes -= len(data)
        if (
            self._transport is not None
            and self.held_bytes <= MAX_HELD_BYTES
            and not self._transport.is_closing()
        ):
            self._transport.resume_reading()
        return data

    def _carry(self, data: bytes, out: asyncio.Transport, wrong: LinkFault) -> None:
        door = self._pair.door
        door.chunks += 1
        if wrong.mode is Mode.TEAR and door.chunks % wrong.tear_every == 0 and len(data) > 1:
            out.write(data[: len(data) // 2])
            door.counts.torn += 1
            self._pair.end()
            return
        door.counts.carried += len(data)
        out.write(data)

    def _drip(self, wrong: LinkFault) -> None:
        """Carry the next chunk at its time; one timer for each direction preserves the order."""
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        self._free_s = max(self._free_s, loop.time()) + len(self._held[0]) / wrong.bytes_per_s
        self._timer = loop.call_at(self._free_s + wrong.delay_s, self._dripped)

    def _dripped(self) -> None:
        self._timer = None
        out = self.other._transport
        if (
            self._held
            and out is not None
            and self._pair.door.wrong.mode is Mode.SLOW
            and not out.is_closing()
        ):
            self._carry(self._take(), out, self._pair.door.wrong)
        self.flow()

"""PyMySQL's connection, made cheap to read from, and to try again while the server is away.

Without `ssl_` options, all connections of a process share one TLS context. PyMySQL itself creates a
context for each attempt and loads the system's certificates into it, although without such options
it verifies nothing. That takes some 25 ms of CPU and megabytes of memory. Each waiting thread would
spend them each second while the server is away.

PyMySQL reads each value of a row by several calls, and each column's description by dozens. Here a
row is taken from the buffer as a whole, and descriptions that are the same again are not read.
"""

import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from pymysql.connections import Connection, MySQLResult
from pymysql.constants import CR
from pymysql.err import OperationalError

_BUFFER_BYTES = 1 << 16  # the standard library's 8 KiB hold few rows of results
_HEADER = struct.Struct("<I")  # three bytes of length, and the packet's number
_NUMBER_AT = 3  # in a packet's header
_KNOWN_COLUMNS = 500  # results whose columns a connection remembers
_LENGTH_BYTES = {252: 2, 253: 3}  # of a longer value, by the byte that announces it
_NULL = 251
_NO_ROW = 254  # a packet that begins so ends the rows, is an error, or has a value above 16 MiB

# How a column's bytes become its value: an encoding, then a converter, either of which may be None.
Reading = tuple[str | None, Callable[[Any], Any] | None]
Columns = tuple[Any, Sequence[Reading], Any]  # PyMySQL's fields, converters and description


class MySQLConnection(Connection):
    """A connection that encrypts if the server offers it, like PyMySQL's own."""

    # PyMySQL's attributes, missing in its stubs.
    _read_timeout: float
    _result: MySQLResult | None
    _next_seq_id: int
    _rfile: Any
    _sock: Any

    def _create_ssl_ctx(self, sslp: Mapping[str, Any]) -> ssl.SSLContext:
        """Return the context for these options.

        The files that the options name are read again each time, because they may have been
        exchanged.
        """
        if not sslp:
            return unverified()
        # The stubs lack this method.
        context: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
        return context

    def connect(self, sock: socket.socket | None = None) -> None:
        """Connect, and read through a larger buffer from then on."""
        self.known_columns: dict[bytes, Columns] = {}
        super().connect(sock)
        self._rfile = self._sock.makefile("rb", _BUFFER_BYTES)

    def _read_query_result(self, *, unbuffered: bool = False) -> int:
        """Read an answer, as PyMySQL does, into a result of ours."""
        if unbuffered:
            raise NotImplementedError  # nobody asks for it
        self._result = None
        result = _Result(self)
        result.read()
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return result.affected_rows or 0


class _Result(MySQLResult):
    """A result that takes whole rows from the connection's buffer.

    A packet that is not wholly in the buffer or is no row is left to PyMySQL.
    """

    # PyMySQL's attributes, missing in its stubs.
    field_count: int
    fields: Any
    description: Any
    converters: Sequence[Reading]
    _check_packet_is_eof: Callable[[Any], bool]
    _read_row_from_packet: Callable[[Any], tuple[Any, ...]]

    def _get_descriptions(self) -> None:
        """Read the columns' descriptions; a statement's are the same bytes each time."""
        connection: Any = self.connection
        sent = _described(connection, self.field_count)
        known = connection.known_columns
        if sent in known:
            connection._rfile.read(len(sent))  # noqa: SLF001
            connection._next_seq_id = (sent[_NUMBER_AT] + self.field_count + 1) % 256  # noqa: SLF001
            self.fields, self.converters, self.description = known[sent]
            return
        super()._get_descriptions()  # type: ignore[misc]
        if sent and len(known) < _KNOWN_COLUMNS:
            known[sent] = self.fields, self.converters, self.description

    def _read_rowdata_packet(self) -> None:
        connection: Any = self.connection
        # An integer needs no decoding.
        readings = [
            (None if convert is int else encoding, convert) for encoding, convert in self.converters
        ]
        rows: list[tuple[Any, ...]] = []
        while True:
            rows += _buffered_rows(connection, readings)
            packet = connection._read_packet()  # noqa: SLF001
            if self._check_packet_is_eof(packet):
                break
            rows.append(self._read_row_from_packet(packet))
        self.connection = None  # as PyMySQL does
        self.affected_rows, self.rows = len(rows), tuple(rows)


def _described(connection: Any, columns: int) -> bytes:
    """Return the packets that describe so many columns; empty unless the buffer has them all."""
    data = _buffered(connection)
    position = 0
    for _ in range(columns + 1):  # the last one only ends the descriptions
        if position + _HEADER.size > len(data):
            return b""
        position += _HEADER.size + (_HEADER.unpack_from(data, position)[0] & 0xFFFFFF)
    return data[:position] if position <= len(data) else b""


def _buffered(connection: Any) -> bytes:
    """Return what the buffer holds; wait for the server if it is empty."""
    try:
        data: bytes = connection._rfile.peek()  # noqa: SLF001
    except OSError as error:
        connection._force_close()  # noqa: SLF001
        raise OperationalError(
            CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query ({error})"
        ) from None
    return data


def _buffered_rows(connection: Any, readings: Sequence[Reading]) -> list[tuple[Any, ...]]:
    """Take the rows that are wholly in the connection's buffer."""
    data = _buffered(connection)
    rows = []
    position, last = 0, len(data) - _HEADER.size
    number = connection._next_seq_id  # noqa: SLF001
    while position < last:
        (header,) = _HEADER.unpack_from(data, position)
        start = position + _HEADER.size
        end = start + (header & 0xFFFFFF)
        if end > len(data) or header >> 24 != number or data[start] >= _NO_ROW:
            break
        rows.append(_row(data, start, readings))
        number = (number + 1) % 256
        position = end
    if position:
        connection._next_seq_id = number  # noqa: SLF001
        connection._rfile.read(position)  # noqa: SLF001
    return rows


def _row(data: bytes, position: int, readings: Sequence[Reading]) -> tuple[Any, ...]:
    """Return the row that begins at this position."""
    row: list[Any] = []
    for encoding, convert in readings:
        length = data[position]
        position += 1
        if length == _NULL:
            row.append(None)
            continue
        if length > _NULL:
            size = _LENGTH_BYTES[length]
            length = int.from_bytes(data[position : position + size], "little")
            position += size
        value: Any = data[position : position + length]
        position += length
        if encoding is not None:
            value = value.decode(encoding)
        row.append(value if convert is None else convert(value))
    return tuple(row)


@cache
def unverified() -> ssl.SSLContext:
    """Return the context that encrypts and verifies nothing; connections share it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

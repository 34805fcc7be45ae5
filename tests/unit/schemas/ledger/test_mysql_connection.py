"""Connections of one program share what is slow to make, and read rows as PyMySQL does."""

import io
import socket
import ssl
import struct
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
from pymysql.connections import Connection
from pymysql.constants import FIELD_TYPE
from pymysql.err import InternalError, OperationalError

from docllm.schemas.ledger.mysql_connection import MySQLConnection, _buffered_rows, unverified


def test_connections_share_one_tls_context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Connections share one TLS context.

    Each try used to load the system's certificates and verify nothing. That cost 25 ms and
    megabytes, eight times a second in an outage.
    """
    made: list[object] = []

    def create_default_context(**options: object) -> ssl.SSLContext:
        made.append(options)
        return unverified()

    monkeypatch.setattr(ssl, "create_default_context", create_default_context)

    tries = [MySQLConnection(host="127.0.0.1", user="u", defer_connect=True) for _ in range(3)]
    MySQLConnection(host="127.0.0.1", user="u", ssl_ca=str(tmp_path / "ca.pem"), defer_connect=True)

    assert [attempt.ctx for attempt in tries] == [unverified()] * 3  # type: ignore[attr-defined]
    assert made == [{"cafile": str(tmp_path / "ca.pem"), "capath": None}]
    assert unverified().verify_mode is ssl.CERT_NONE


def _packet(number: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number % 256]) + payload


def _value(value: bytes | None) -> bytes:
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 251:
        return bytes([size]) + value
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little") + value
    return b"\xfd" + size.to_bytes(3, "little") + value


def _field(kind: int, charset: int) -> bytes:
    names = b"".join(map(_value, (b"def", b"", b"", b"", b"name", b"")))
    return names + struct.pack("<BHIBHB2x", 12, charset, 1 << 20, kind, 0, 0)


ROWS: Sequence[tuple[bytes | None, ...]] = [
    (b"1", b"x\xc3\xa9", b"\x00\xff", b"1.5"),
    (None, None, None, None),
    (b"-7", b"", b"", b"0"),
    (b"2", b"a" * 250, b"b" * 251, b"3"),  # the longest that one byte announces, and one more
    (b"3", b"c" * 5000, b"d" * 70_000, b"4"),
    *[(str(number).encode(), b"t", b"b", b"9.25") for number in range(600)],
]
FIELDS = [(FIELD_TYPE.LONGLONG, 63), (FIELD_TYPE.VAR_STRING, 45), (FIELD_TYPE.BLOB, 63)]
FIELDS.append((FIELD_TYPE.NEWDECIMAL, 63))
EOF_PACKET = b"\xfe\x00\x00\x02\x00"
ERROR_PACKET = b"\xff\x25\x05#HY000it ends here"  # 1317


def _answer(rows: Sequence[tuple[bytes | None, ...]], last: bytes) -> bytes:
    """Return a whole result as a server sends it."""
    payloads = [bytes([len(FIELDS)]), *(_field(*kind) for kind in FIELDS), EOF_PACKET]
    payloads += [b"".join(map(_value, row)) for row in rows]
    numbered = enumerate([*payloads, last], start=1)
    return b"".join(_packet(number, payload) for number, payload in numbered)


def _reading(kind: type[Any], answer: bytes, buffer_size: int) -> Any:
    """Return a connection that has sent a query and is to read this answer."""
    connection: Any = kind(host="127.0.0.1", user="u", defer_connect=True)
    connection._rfile = io.BufferedReader(io.BytesIO(answer), buffer_size)
    connection._sock = create_autospec(socket.socket, instance=True)
    connection._result, connection._next_seq_id = None, 1
    connection.known_columns = {}
    connection._current_timeout = connection._read_timeout
    return connection


@pytest.mark.parametrize("buffer_size", [1, 7, 64, 8192, 1 << 20])
def test_rows_are_those_that_pymysql_reads(buffer_size: int) -> None:
    """Whatever the buffer holds: nothing, a part of a row, or all rows and the end."""
    results = []
    kinds: tuple[type[Any], ...] = (Connection, MySQLConnection)
    for kind in kinds:
        connection = _reading(kind, _answer(ROWS, EOF_PACKET), buffer_size)
        assert connection._read_query_result() == len(ROWS)
        results.append(connection._result.rows)

    assert results[0] == results[1]
    assert results[1][0] == (1, "xé", b"\x00\xff", Decimal("1.5"))


@pytest.mark.parametrize("buffer_size", [64, 1 << 20])
def test_columns_that_are_described_again_are_the_same(buffer_size: int) -> None:
    """Another result's columns are not taken for them, however alike."""
    other = _answer(ROWS, EOF_PACKET).replace(_field(*FIELDS[1]), _field(FIELD_TYPE.BLOB, 63))
    answers = [_answer(ROWS, EOF_PACKET), other] * 2
    results = []
    for kind in (Connection, MySQLConnection):
        connection = _reading(kind, b"", buffer_size)
        for answer in answers:
            connection._rfile = io.BufferedReader(io.BytesIO(answer), buffer_size)
            connection._next_seq_id = 1
            connection._read_query_result()
            results.append((connection._result.rows, connection._result.description))

    assert results[:4] == results[4:]
    assert results[0] == results[2] != results[1]
    assert len(connection.known_columns) == (2 if buffer_size > 64 else 0)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (_answer(ROWS, ERROR_PACKET), "it ends here"),
        (_answer(ROWS, EOF_PACKET)[:-20], "Lost connection"),
        (_answer(ROWS, EOF_PACKET)[: -len(EOF_PACKET) - 4], "Lost connection"),
    ],
)
@pytest.mark.parametrize("kind", [Connection, MySQLConnection])
def test_a_result_that_ends_early_is_an_error(kind: type[Any], answer: bytes, message: str) -> None:
    with pytest.raises(OperationalError, match=message):
        _reading(kind, answer, 8192)._read_query_result()


def test_a_row_out_of_its_turn_is_an_error() -> None:
    out_of_turn = _answer(ROWS[:1], EOF_PACKET).replace(
        _packet(7, b"".join(map(_value, ROWS[0]))), _packet(9, b"".join(map(_value, ROWS[0])))
    )
    with pytest.raises(InternalError, match="sequence"):
        _reading(MySQLConnection, out_of_turn, 8192)._read_query_result()


def test_a_time_out_between_rows_is_named() -> None:
    class Slow(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            raise TimeoutError("timed out")

    connection = _reading(MySQLConnection, b"", 8192)
    connection._rfile = io.BufferedReader(Slow())
    with pytest.raises(OperationalError, match="timed out"):
        _buffered_rows(connection, [])

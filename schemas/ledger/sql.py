"""SQL expressions that differ between MySQL, MariaDB and SQLite, and the column types.

All expressions use the database's own clock, in UTC. `NOW()` and `CURRENT_TIMESTAMP` are local time
and are not used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    DateTime,
    Float,
    Insert,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Table,
    Text,
    func,
    literal,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler, TypeCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

LONG_AGO = "2000-01-01 00:00:00.000000"
NEVER = "9999-12-31 00:00:00.000000"
# The database's times are UTC without a zone.
LONG_AGO_TIME = datetime(2000, 1, 1)  # noqa: DTZ001
NEVER_TIME = datetime(9999, 12, 31)  # noqa: DTZ001
# For a statement with its values in it: the driver need not search it for placeholders.
AS_IT_IS = {"no_parameters": True}
_SQLITE_FORMAT = "'%Y-%m-%d %H:%M:%f'"


class _Time(DateTime):
    pass


class _Tiny(SmallInteger):
    pass


class _Blob(LargeBinary):
    pass


class _LongText(Text):
    pass


class _Binary(LargeBinary):
    pass


class _VarBinary(LargeBinary):
    pass


# What the types are called on servers. SQLAlchemy's own types for MySQL would load all its drivers.
_ON_SERVERS: dict[type[TypeEngine[Any]], str] = {
    _Time: "DATETIME(6)",
    _Tiny: "TINYINT UNSIGNED",
    _Blob: "LONGBLOB",
    _LongText: "LONGTEXT",
    _Binary: "BINARY({length})",
    _VarBinary: "VARBINARY({length})",
}


def _written(type_: TypeEngine[Any], _compiler: TypeCompiler, **_kw: Any) -> str:
    return _ON_SERVERS[type(type_)].format(length=getattr(type_, "length", None))


for _type in _ON_SERVERS:
    compiles(_type, "mysql", "mariadb")(_written)

UtcTime: TypeEngine[Any] = _Time()
BigId: TypeEngine[int] = BigInteger().with_variant(Integer, "sqlite")
Tiny: TypeEngine[int] = _Tiny()
Blob: TypeEngine[bytes] = _Blob()
LongText: TypeEngine[str] = _LongText()


def binary(length: int) -> TypeEngine[bytes]:
    """Return a type of exactly `length` bytes."""
    return _Binary(length)


def varbinary(length: int) -> TypeEngine[bytes]:
    """Return a type of at most `length` bytes, compared byte by byte."""
    return _VarBinary(length)


def name(length: int) -> TypeEngine[str]:
    """Return a short text type of at most `length` characters."""
    return String(length)


class utc_now(FunctionElement[Any]):  # noqa: N801 - reads as the SQL function it is
    """The database's time, UTC."""

    type = UtcTime
    inherit_cache = True


class utc_default(FunctionElement[Any]):  # noqa: N801 - reads as the SQL function it is
    """The database's time as a column default; an expression default needs its parentheses."""

    type = UtcTime
    inherit_cache = True


class utc_after(FunctionElement[Any]):  # noqa: N801 - reads as the SQL function it is
    """The database's time plus `seconds`, which may be negative or a column."""

    type = UtcTime
    inherit_cache = True

    def __init__(self, seconds: float | ColumnElement[Any]) -> None:
        super().__init__(seconds if isinstance(seconds, ColumnElement) else literal(float(seconds)))


class utc_minute(FunctionElement[Any]):  # noqa: N801 - reads as the SQL function it is
    """The beginning of the present minute by the database's time, UTC."""

    type = UtcTime
    inherit_cache = True


class seconds_until(FunctionElement[float]):  # noqa: N801 - reads as the SQL function it is
    """The seconds from the database's time to a column's time; negative when it has passed."""

    type = Float()  # servers answer with a decimal
    inherit_cache = True


class minutes_since(FunctionElement[int]):  # noqa: N801 - reads as the SQL function it is
    """The whole minutes from a column's time to the database's time; 0 in the first minute."""

    type = Integer()
    inherit_cache = True


@compiles(utc_now)
def _utc_now(_element: utc_now, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "UTC_TIMESTAMP(6)"


@compiles(utc_now, "sqlite")
def _utc_now_sqlite(_element: utc_now, _compiler: SQLCompiler, **_kw: Any) -> str:
    return f"(strftime({_SQLITE_FORMAT}, 'now') || '000')"


@compiles(utc_default)
def _utc_default(_element: utc_default, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "(UTC_TIMESTAMP(6))"


@compiles(utc_default, "sqlite")
def _utc_default_sqlite(_element: utc_default, _compiler: SQLCompiler, **_kw: Any) -> str:
    return f"(strftime({_SQLITE_FORMAT}, 'now') || '000')"


@compiles(utc_after)
def _utc_after(element: utc_after, compiler: SQLCompiler, **kw: Any) -> str:
    seconds = compiler.process(element.clauses, **kw)
    return f"(UTC_TIMESTAMP(6) + INTERVAL ROUND({seconds} * 1000000) MICROSECOND)"


@compiles(utc_after, "sqlite")
def _utc_after_sqlite(element: utc_after, compiler: SQLCompiler, **kw: Any) -> str:
    seconds = f"printf('%+.3f seconds', {compiler.process(element.clauses, **kw)})"
    return f"(strftime({_SQLITE_FORMAT}, 'now', {seconds}) || '000')"


@compiles(utc_minute)
def _utc_minute(_element: utc_minute, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "(UTC_TIMESTAMP() - INTERVAL SECOND(UTC_TIMESTAMP()) SECOND)"


@compiles(utc_minute, "sqlite")
def _utc_minute_sqlite(_element: utc_minute, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "strftime('%Y-%m-%d %H:%M:00.000000', 'now')"


@compiles(seconds_until)
def _seconds_until(element: seconds_until, compiler: SQLCompiler, **kw: Any) -> str:
    time = compiler.process(element.clauses, **kw)
    return f"(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), {time}) / 1000000)"


@compiles(seconds_until, "sqlite")
def _seconds_until_sqlite(element: seconds_until, compiler: SQLCompiler, **kw: Any) -> str:
    return f"((julianday({compiler.process(element.clauses, **kw)}) - julianday('now')) * 86400.0)"


@compiles(minutes_since)
def _minutes_since(element: minutes_since, compiler: SQLCompiler, **kw: Any) -> str:
    time = compiler.process(element.clauses, **kw)
    return f"TIMESTAMPDIFF(MINUTE, {time}, UTC_TIMESTAMP(6))"


@compiles(minutes_since, "sqlite")
def _minutes_since_sqlite(element: minutes_since, compiler: SQLCompiler, **kw: Any) -> str:
    time = compiler.process(element.clauses, **kw)
    return f"CAST((julianday('now') - julianday({time})) * 1440.0 AS INTEGER)"


def insert_new(connection: Connection, table: Table[Any]) -> Insert:
    """Return an INSERT that leaves a row with the same key as it is.

    INSERT IGNORE is not used, because it also cuts long keys and clamps numbers silently.
    """
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects import sqlite  # noqa: PLC0415 - the dialect that is in use

        return sqlite.insert(table).on_conflict_do_nothing()
    from sqlalchemy.dialects import mysql  # noqa: PLC0415 - the dialect that is in use

    key_column = next(iter(table.primary_key.columns))
    return mysql.insert(table).on_duplicate_key_update({key_column.name: key_column})


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """How a row joins the row that has its key.

    The columns `added` are added, and of `least` and `greatest` the smaller and the greater value
    stays. The other columns stay as they are.
    """

    added: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    greatest: tuple[str, ...] = ()

    def join(self, row: dict[str, Any], other: Mapping[str, Any]) -> None:
        """Let `other` join `row`."""
        for name in self.added:
            row[name] += other[name]
        for name in self.least:
            row[name] = min(row[name], other[name])
        for name in self.greatest:
            row[name] = max(row[name], other[name])

    def sqlite_insert(self, table: Table[Any]) -> Insert:
        """Return SQLite's INSERT of rows that join."""
        from sqlalchemy.dialects import sqlite  # noqa: PLC0415 - the dialect that is in use

        statement = sqlite.insert(table)
        new = statement.excluded
        changes: dict[str, Any] = {name: table.c[name] + new[name] for name in self.added}
        changes |= {name: func.min(table.c[name], new[name]) for name in self.least}
        changes |= {name: func.max(table.c[name], new[name]) for name in self.greatest}
        return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=changes)

    def server_clause(self, table: Table[Any]) -> str:
        """Return the end of a server's INSERT of rows that join."""
        changes = [f"{name}={table.name}.{name}+VALUES({name})" for name in self.added]
        for function, names in (("LEAST", self.least), ("GREATEST", self.greatest)):
            changes += [f"{name}={function}({table.name}.{name},VALUES({name}))" for name in names]
        return f" ON DUPLICATE KEY UPDATE {','.join(changes)}"

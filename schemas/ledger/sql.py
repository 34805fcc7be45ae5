"""SQL expressions that differ between MySQL, MariaDB and SQLite, and the column types.

All expressions use the database's own clock, in UTC. `NOW()` and `CURRENT_TIMESTAMP` are local time
and are not used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

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
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine, UserDefinedType

LONG_AGO = "2000-01-01 00:00:00.000000"
NEVER = "9999-12-31 00:00:00.000000"
# The database's times are UTC without a zone.
LONG_AGO_TIME = datetime(2000, 1, 1)  # noqa: DTZ001
NEVER_TIME = datetime(9999, 12, 31)  # noqa: DTZ001
# For a statement with its values in it: the driver need not search it for placeholders.
AS_IT_IS = {"no_parameters": True}
_SQLITE_FORMAT = "'%Y-%m-%d %H:%M:%f'"


T = TypeVar("T")


class _OnServers(UserDefinedType[Any]):
    """The name of a type on servers: SQLAlchemy's own for MySQL would load all its drivers."""

    cache_ok = True

    def __init__(self, called: str) -> None:
        self.called = called

    def get_col_spec(self, **_kw: Any) -> str:
        """Return the name."""
        return self.called


def _type(usual: TypeEngine[Any], on_servers: str) -> TypeEngine[Any]:
    return usual.with_variant(_OnServers(on_servers), "mysql", "mariadb")


UtcTime: TypeEngine[Any] = _type(DateTime(), "DATETIME(6)")
BigId: TypeEngine[int] = BigInteger().with_variant(Integer, "sqlite")
Tiny: TypeEngine[int] = _type(SmallInteger(), "TINYINT UNSIGNED")
Blob: TypeEngine[bytes] = _type(LargeBinary(), "LONGBLOB")
LongText: TypeEngine[str] = _type(Text(), "LONGTEXT")


def binary(length: int) -> TypeEngine[bytes]:
    """Return a type of exactly `length` bytes."""
    return _type(LargeBinary(length), f"BINARY({length})")


def varbinary(length: int) -> TypeEngine[bytes]:
    """Return a type of at most `length` bytes, compared byte by byte."""
    return _type(LargeBinary(length), f"VARBINARY({length})")


def name(length: int) -> TypeEngine[str]:
    """Return a short text type of at most `length` characters."""
    return String(length)


class _Expression(FunctionElement[T]):
    """An expression that servers and SQLite write in different ways, `{}` for its argument."""

    inherit_cache = True
    type: TypeEngine[T] = UtcTime
    on_servers: str
    on_sqlite: str

    def __init_subclass__(cls) -> None:
        """Let statements with the expression be cached, which SQLAlchemy asks of each class."""
        super().__init_subclass__()
        cls.inherit_cache = True


@compiles(_Expression)
def _written(element: _Expression[Any], compiler: SQLCompiler, **kw: Any) -> str:
    form = element.on_sqlite if compiler.dialect.name == "sqlite" else element.on_servers
    return form.format(compiler.process(element.clauses, **kw))


class utc_now(_Expression[Any]):  # noqa: N801 - reads as the SQL function it is
    """The database's time, UTC; in its parentheses it may be a column's default."""

    on_servers = "(UTC_TIMESTAMP(6))"
    on_sqlite = f"(strftime({_SQLITE_FORMAT}, 'now') || '000')"


class utc_after(_Expression[Any]):  # noqa: N801 - reads as the SQL function it is
    """The database's time plus `seconds`, which may be negative or a column."""

    on_servers = "(UTC_TIMESTAMP(6) + INTERVAL ROUND({} * 1000000) MICROSECOND)"
    on_sqlite = f"(strftime({_SQLITE_FORMAT}, 'now', printf('%+.3f seconds', {{}})) || '000')"

    def __init__(self, seconds: float | ColumnElement[Any]) -> None:
        super().__init__(seconds if isinstance(seconds, ColumnElement) else literal(float(seconds)))


class utc_minute(_Expression[Any]):  # noqa: N801 - reads as the SQL function it is
    """The beginning of the present minute by the database's time, UTC."""

    on_servers = "(UTC_TIMESTAMP() - INTERVAL SECOND(UTC_TIMESTAMP()) SECOND)"
    on_sqlite = "strftime('%Y-%m-%d %H:%M:00.000000', 'now')"


class seconds_until(_Expression[float]):  # noqa: N801 - reads as the SQL function it is
    """The seconds from the database's time to a column's time; negative when it has passed."""

    type = Float()  # servers answer with a decimal
    on_servers = "(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), {}) / 1000000)"
    on_sqlite = "((julianday({}) - julianday('now')) * 86400.0)"


class minutes_since(_Expression[int]):  # noqa: N801 - reads as the SQL function it is
    """The whole minutes from a column's time to the database's time; 0 in the first minute."""

    type = Integer()
    on_servers = "TIMESTAMPDIFF(MINUTE, {}, UTC_TIMESTAMP(6))"
    on_sqlite = "CAST((julianday('now') - julianday({})) * 1440.0 AS INTEGER)"


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

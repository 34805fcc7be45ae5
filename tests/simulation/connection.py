"""A connection that caches how SQLAlchemy compiles the statements that the product builds once.

Each agent runs these every second. All other statements go SQLAlchemy's own way, except for texts
that are complete. So does a failing one, for the error that the product knows.
"""

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Connection, Engine, Executable, Insert, IteratorResult
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.engine.result import SimpleResultMetaData

Work = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Changed:
    """The result of a statement without rows."""

    rowcount: int
    returns_rows = False


class Rows(IteratorResult[Any]):
    """The rows of a statement."""

    returns_rows = True


@dataclass(frozen=True, slots=True)
class Ready:
    """A constant statement, compiled.

    It has its SQL, its values in order (fixed, or how each is bound), and how its rows, if any, are
    made.
    """

    sql: str
    values: tuple[tuple[str, Any, Work | None], ...]
    rows: SimpleResultMetaData | None

    def run(self, raw: sqlite3.Connection, given: Mapping[str, Any]) -> Any:
        """Run it; return its rows, or how many it changed."""
        values = [
            given.get(name, fixed) if bind is None else bind(given.get(name, fixed))
            for name, fixed, bind in self.values
        ]
        cursor = raw.execute(self.sql, values)
        return (
            Changed(cursor.rowcount)
            if self.rows is None
            else Rows(self.rows, iter(cursor.fetchall()))
        )


class QuickConnection(Connection):
    """A connection to SQLite; `constants` has the compiled statements that were executed twice.

    Others are built for each call, and forgotten after it. With `is_quick` False, SQLAlchemy
    executes all.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._raw: Any = self.connection.dbapi_connection
        self.is_quick = True
        self.constants: WeakKeyDictionary[Executable, Ready | None] = WeakKeyDictionary()
        self._executed: WeakSet[Executable] = WeakSet()

    def execute(self, statement: Any, parameters: Any = None, **options: Any) -> Any:
        """Execute a statement like SQLAlchemy.

        A constant statement's result has only what the product uses.
        """
        ready = self._constant(statement)
        if ready is None or isinstance(parameters, list) or options:
            return super().execute(statement, parameters, **options)
        try:
            return ready.run(self._raw, parameters or {})
        except sqlite3.Error:
            return super().execute(statement, parameters)

    def exec_driver_sql(
        self, statement: str, parameters: Any = None, execution_options: Any = None
    ) -> Any:
        """Execute a text like SQLAlchemy; its result has only what the product uses."""
        if parameters is not None or not self.is_quick:
            return super().exec_driver_sql(statement, parameters, execution_options)
        try:
            cursor = self._raw.execute(statement)
        except sqlite3.Error:
            return super().exec_driver_sql(statement, None, execution_options)
        if cursor.description is None:
            return Changed(cursor.rowcount)
        names = tuple(name for name, *_ in cursor.description)
        return Rows(_columns(names), iter(cursor.fetchall()))

    def _constant(self, statement: Executable) -> Ready | None:
        try:
            return self.constants[statement]
        except KeyError:
            if not self.is_quick:
                return None
        if statement not in self._executed:
            self._executed.add(statement)
            return None
        self.constants[statement] = ready = _ready(statement, self.dialect)
        return ready


@lru_cache
def _columns(names: tuple[str, ...]) -> SimpleResultMetaData:
    return SimpleResultMetaData(names)


def _ready(statement: Any, dialect: Dialect) -> Ready | None:
    """Return a compiled statement, or None if it cannot be constant.

    Its text may depend on its values, or SQLAlchemy may add values of its own.
    """
    if isinstance(statement, Insert):
        return None
    made = statement.compile(dialect=dialect)
    is_text = statement.__visit_name__ == "textclause"
    if made.post_compile_params or made.literal_execute_params or made.update_prefetch:
        return None
    if is_text and not made.string.lstrip().startswith(("UPDATE", "DELETE")):
        return None
    binds = made._bind_processors
    values = tuple((name, made.params[name], binds.get(name)) for name in made.positiontup or ())
    columns = made._result_columns
    of_rows = [column.type._cached_result_processor(dialect, None) for column in columns]
    rows = (
        SimpleResultMetaData([column.keyname for column in columns], _processors=of_rows)
        if columns
        else None
    )
    return Ready(made.string, values, rows)

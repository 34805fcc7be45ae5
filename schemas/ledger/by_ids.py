"""Runs a statement for the rows of some ids. It is compiled once, and all it is given are numbers.

SQLAlchemy binds each id by itself, and looks the statement up anew for each number of ids. Numbers
need no escaping, so here they are written into the text.
"""

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Select, Update

from docllm.schemas.ledger.sql import AS_IT_IS

_PLACE = re.compile(r":(\w++)|__\[POSTCOMPILE_(\w++)\]")


def execute_by_ids(
    connection: Connection, statement: Select[Any] | Update, ids: Collection[int], **numbers: float
) -> Sequence[Any]:
    """Run a statement that names its ids `ids` and has `numbers` as its other parameters.

    Returns its rows, if it has any, as the driver gives them: times of SQLite are texts.
    """
    dialect: Any = type(connection.dialect)
    text = _text(statement, dialect).format(
        ids=",".join(map(str, sorted(ids))) or "NULL", **numbers
    )
    result = connection.exec_driver_sql(text, execution_options=AS_IT_IS)
    return result.all() if result.returns_rows else ()


@lru_cache(maxsize=100)
def _text(statement: Select[Any] | Update, dialect: Any) -> str:
    """Return the statement with its constants in it, and with {name} for each parameter."""
    compiled = statement.compile(dialect=dialect(paramstyle="named"))

    def written(place: re.Match[str]) -> str:
        name = place[1] or place[2]
        return f"{{{name}}}" if compiled.binds[name].required else _literal(compiled.params[name])

    return _PLACE.sub(written, compiled.string.replace("{", "{{").replace("}", "}}"))


def _literal(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_literal, value))
    if isinstance(value, datetime):
        return f"'{value.isoformat(' ', 'microseconds')}'"
    if isinstance(value, int):
        return str(int(value))
    raise TypeError(f"{type(value).__name__} cannot be a constant")

"""What holds for all tasks of a batch whose lines do not say otherwise, as JSON in its row.

Programs of other versions write it too, so a reader ignores what it does not know.

Tested by tests/contract/test_ledger_claim.py.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import Connection, select, update

from schemas.ledger.tables import batch

_ROUTES, _OUTPUT = "routes_allowed", "output_uri"


def allow_routes(connection: Connection, batch_id: int, routes: Sequence[str]) -> None:
    """Bound the routes of a batch's tasks; this holds for the tasks that it has already too."""
    _set(connection, batch_id, {_ROUTES: list(routes)})


def send_outputs(connection: Connection, batch_id: int, uri: str) -> None:
    """Let the results of a batch's tasks go below `uri`; tasks that have ended stay as they are."""
    _set(connection, batch_id, {_OUTPUT: uri})


@lru_cache(maxsize=1000)
def routes_allowed(stored: str | None) -> tuple[str, ...] | None:
    """Return the routes that a batch's options allow; None if they bound nothing."""
    names = _read(stored).get(_ROUTES)
    if not isinstance(names, list):
        return None
    return tuple(name for name in names if isinstance(name, str))


@lru_cache(maxsize=1000)
def output_uri(stored: str | None) -> str:
    """Return where a batch's options send results; empty for the ledger."""
    uri = _read(stored).get(_OUTPUT)
    return uri if isinstance(uri, str) else ""


def _set(connection: Connection, batch_id: int, changed: dict[str, Any]) -> None:
    of_batch = batch.c.id == batch_id
    stored = connection.execute(select(batch.c.options).where(of_batch).with_for_update()).scalar()
    options = _read(stored) | changed
    connection.execute(update(batch).where(of_batch).values(options=orjson.dumps(options).decode()))


def _read(stored: str | None) -> dict[str, Any]:
    try:
        options = orjson.loads(stored) if stored else {}
    except orjson.JSONDecodeError:
        options = {}
    return options if isinstance(options, dict) else {}

"""A batch's defaults for fields that its lines do not set, as JSON in the batch's row.

Other versions write them too, so a reader ignores unknown fields.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import Connection, select, update

from docllm.schemas.ledger.tables import batch

_ROUTES, _OUTPUT, _RAW = "routes_allowed", "output_uri", "output_raw"
_TENANT, _PRIORITY = "tenant", "priority"
_OPENAI = "openai"


@dataclass(frozen=True, slots=True)
class TaskDefaults:
    """What new tasks get whose lines do not set it; None leaves docllm's defaults.

    `not_before` and `expires_at` are of one load, in UTC without a zone, and are not stored.
    """

    tenant: str | None = None
    priority: int | None = None
    not_before: datetime | None = None
    expires_at: datetime | None = None


def allow_routes(connection: Connection, batch_id: int, routes: Sequence[str]) -> None:
    """Bound the routes of a batch's tasks, of those that it already has too."""
    _change(connection, batch_id, {_ROUTES: list(routes)})


def send_outputs(connection: Connection, batch_id: int, uri: str) -> None:
    """Let the results of a batch's tasks go below `uri`; tasks that have ended stay as they are."""
    _change(connection, batch_id, {_OUTPUT: uri})


def send_answers(connection: Connection, batch_id: int) -> None:
    """Let the objects that lines name have the answers alone, of tasks not yet copied too."""
    _change(connection, batch_id, {_RAW: True})


def set_defaults(connection: Connection, batch_id: int, given: TaskDefaults) -> TaskDefaults:
    """Store the given defaults for the batch's new tasks; return all defaults.

    Defaults that are not given keep their stored values.
    """
    changes = {_TENANT: given.tenant, _PRIORITY: given.priority}
    given_changes = {name: value for name, value in changes.items() if value is not None}
    if given_changes:
        _change(connection, batch_id, given_changes)
    return replace(task_defaults(connection, batch_id), not_before=given.not_before)


def task_defaults(connection: Connection, batch_id: int) -> TaskDefaults:
    """Return what holds for a batch's new tasks whose lines do not say otherwise."""
    options = _read(
        connection.execute(select(batch.c.options).where(batch.c.id == batch_id)).scalar()
    )
    tenant, priority = options.get(_TENANT), options.get(_PRIORITY)
    return TaskDefaults(
        tenant if isinstance(tenant, str) else None, priority if type(priority) is int else None
    )


def set_openai(connection: Connection, batch_id: int, facts: Mapping[str, Any]) -> None:
    """Store what a client of the batch API has said of a batch, and what became of it."""
    _change(connection, batch_id, {_OPENAI: dict(facts)})


def openai(stored: str | None) -> dict[str, Any] | None:
    """Return what `set_openai` has stored; None for a batch that was made in another way."""
    facts = _read(stored).get(_OPENAI)
    return facts if isinstance(facts, dict) else None


def _change(connection: Connection, batch_id: int, changes: Mapping[str, Any]) -> None:
    """Write these options of a batch; the others stay."""
    has_id = batch.c.id == batch_id
    query = select(batch.c.options).where(has_id).with_for_update()
    options = _read(connection.execute(query).scalar()) | dict(changes)
    connection.execute(update(batch).where(has_id).values(options=orjson.dumps(options).decode()))


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


def output_raw(stored: str | None) -> bool:
    """Return whether the objects that a batch's lines name have the answers alone."""
    return _read(stored).get(_RAW) is True


def _read(stored: str | None) -> dict[str, Any]:
    try:
        options = orjson.loads(stored) if stored else {}
    except orjson.JSONDecodeError:
        options = {}
    return options if isinstance(options, dict) else {}

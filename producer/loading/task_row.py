"""Turns a task line into the row that the ledger stores."""

from collections.abc import Callable
from datetime import UTC, datetime

from docllm.producer.ledger.batch_options import TaskDefaults
from docllm.producer.ledger.new_tasks import NewTask
from docllm.schemas.task.line.parsing import TaskLine
from docllm.schemas.task.record.envelope import digest
from docllm.schemas.task.record.hints import PLAIN, Hints, most_out
from docllm.schemas.task.record.lanes import lane_for
from docllm.schemas.task.task_types import DOCUMENT

_NO_DEFAULTS = TaskDefaults()


def new_task(
    line: TaskLine,
    value: bytes,
    max_attempts_of: Callable[[str], int],
    *,
    raw_key: bytes | None,
    headers: bytes | None = None,
    defaults: TaskDefaults = _NO_DEFAULTS,
) -> NewTask:
    """Return the task to accept.

    `value` is the line as it was read, `raw_key` the key of the record that brought it.
    `max_attempts_of` gives the attempts for a type if the line sets none, and `defaults` what else
    it does not set.
    """
    key = line.key.encode()
    new = NewTask(
        key=key,
        digest=digest(key, value),
        value=value,
        type=line.type,
        tenant=line.tenant,
        max_attempts=line.max_attempts or max_attempts_of(line.type),
        expires_at=_stored(line.deadline),
        raw_key=raw_key,
        headers=headers,
        lane=lane_for(line.priority),
        not_before=_stored(line.not_before),
        names_tenant="tenant" in line.given,
        names_priority="priority" in line.given,
        hints=_hints(line),
    )
    give_defaults(new, defaults)
    return new


def _hints(line: TaskLine) -> Hints:
    request = line.params if line.body is None else line.body
    if line.type == DOCUMENT and not (line.model or line.route or line.uri or request):
        return PLAIN
    document_bytes = None if line.uri is None else line.size or 0
    return Hints(line.type, line.model or "", line.route or "", document_bytes, most_out(request))


def give_defaults(new: NewTask, defaults: TaskDefaults) -> None:
    """Give the task what its batch or load sets where its line does not."""
    if defaults.tenant is not None and not new.names_tenant:
        new.tenant = defaults.tenant
    if defaults.priority is not None and not new.names_priority:
        new.lane = lane_for(defaults.priority)
    if defaults.not_before is not None and new.not_before is None:
        new.not_before = defaults.not_before
    if defaults.expires_at is not None and new.expires_at is None:
        new.expires_at = defaults.expires_at


def _stored(time: datetime | None) -> datetime | None:
    return time and time.astimezone(UTC).replace(tzinfo=None)

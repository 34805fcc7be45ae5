"""Turns a task line into the row that the ledger stores."""

from collections.abc import Callable
from datetime import UTC

from producer.ledger.batch_options import TaskDefaults
from producer.ledger.new_tasks import NewTask
from schemas.task.envelope import digest
from schemas.task.lanes import lane_for
from schemas.task.line import TaskLine

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
    tenant = line.tenant if "tenant" in line.given else defaults.tenant or line.tenant
    priority = line.priority
    if "priority" not in line.given and defaults.priority is not None:
        priority = defaults.priority
    return NewTask(
        key=key,
        digest=digest(key, value),
        value=value,
        type=line.type,
        tenant=tenant,
        max_attempts=line.max_attempts or max_attempts_of(line.type),
        expires_at=line.deadline and line.deadline.astimezone(UTC).replace(tzinfo=None),
        raw_key=raw_key,
        headers=headers,
        lane=lane_for(priority),
    )

"""A batch as an object of OpenAI's batch API: its state, times, counts and files.

Output and error file are views of the batch's tasks. Nothing of them is stored: their ids have that
of the batch.
"""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from docllm.producer.ledger.openai_batches import ERRORS, OpenAIBatch
from docllm.producer.ledger.results.export import Selection
from docllm.producer.ledger.results.result_lines import ExportedTask, openai_line
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.states import Status

ENDPOINT = "/v1/chat/completions"
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_VIEW = re.compile(r"file-(output|error)-([0-9a-f]{32})")
_OF_VIEW = {
    "output": Selection(statuses=frozenset({Status.SUCCEEDED})),
    "error": Selection(statuses=frozenset({Status.DEAD, Status.CANCELLED})),
}
_EXPIRED = f"dead {ErrorClass.EXPIRED}"


def batch_json(found: OpenAIBatch) -> dict[str, Any]:
    """Return the batch object."""
    state, counts = state_of(found), found.status.counts
    refused, is_ended = counts["dead"] + counts["cancelled"], state in ENDED
    changed_at = max(found.changed_at, found.loaded_at or found.created_at)
    errors = found.facts.get(ERRORS)
    ended_at = {
        "completed": changed_at,
        "expired": changed_at,
        "failed": found.cancelled_at,
        "cancelled": max(changed_at, found.cancelled_at or changed_at),
    }
    cancelling_at = None if errors else found.cancelled_at
    return {
        "id": found.id,
        "object": "batch",
        "endpoint": found.facts["endpoint"],
        "errors": errors and {"object": "list", "data": errors},
        "input_file_id": found.facts["input_file_id"],
        "completion_window": found.facts["completion_window"],
        "status": state,
        "output_file_id": view_id("output", found) if is_ended and counts["succeeded"] else None,
        "error_file_id": view_id("error", found) if is_ended and refused else None,
        "created_at": _seconds(found.created_at),
        "in_progress_at": _seconds(found.loaded_at),
        "expires_at": _seconds(expires_at(found)),
        "finalizing_at": _seconds(changed_at) if state == "completed" else None,
        "completed_at": None,
        "failed_at": None,
        "expired_at": None,
        "cancelling_at": _seconds(cancelling_at),
        "cancelled_at": None,
        "request_counts": {
            "total": counts["total"],
            "completed": counts["succeeded"],
            "failed": counts["dead"],
        },
        "metadata": found.facts.get("metadata"),
    } | ({f"{state}_at": _seconds(ended_at[state])} if is_ended else {})


def state_of(found: OpenAIBatch) -> str:
    """Return the state of the batch in the words of the API."""
    if found.facts.get(ERRORS):
        return "failed"
    if found.cancelled_at is not None:
        return "cancelling" if found.status.open else "cancelled"
    if found.loaded_at is None:
        return "validating"
    if found.status.open:
        return "in_progress"
    return "expired" if _EXPIRED in found.status.failures else "completed"


def expires_at(found: OpenAIBatch) -> datetime:
    """Return the end of the batch's window, which is the deadline of its tasks."""
    return found.created_at + timedelta(seconds=found.facts["window_s"])


def view_id(kind: str, found: OpenAIBatch) -> str:
    """Return the id of the batch's output or error file."""
    return f"file-{kind}-{found.id.removeprefix('batch_')}"


def view_of(file_id: str) -> tuple[str, str] | None:
    """Return the kind and the batch's id that the id of an output or error file names, if any."""
    match = _VIEW.fullmatch(file_id)
    return None if match is None else (match[1], f"batch_{match[2]}")


def selection(kind: str) -> Selection:
    """Return which tasks of the batch such a file has."""
    return _OF_VIEW[kind]


def view_line(task: ExportedTask) -> bytes | None:
    """Return a task's line in these files: that of an export, with the API's word for lateness."""
    if task.letter is not None and task.letter.error_class == ErrorClass.EXPIRED:
        task = replace(task, letter=replace(task.letter, error_class="batch_expired"))
    return openai_line(task)


def _seconds(time: datetime | None) -> int | None:
    return None if time is None else int(time.replace(tzinfo=UTC).timestamp())

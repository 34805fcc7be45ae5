"""A batch's state in the words of OpenAI's API, and the ids of its files."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from docllm.producer.ledger.openai_batches import OpenAIBatch
from docllm.producer.ledger.results.result_lines import ExportedTask, Letter
from docllm.producer.ledger.status.batch_status import BatchStatus
from docllm.producer.ledger.store import Batch
from docllm.producer.serve.openai_batch import batch_json, view_line, view_of
from docllm.schemas.task.states import Status

MADE = datetime(2027, 1, 31, 12)  # noqa: DTZ001 - as the ledger stores it
MADE_S = 1_801_396_800
NUMBER = "0" * 32
ERROR = {"code": "invalid_line", "message": "x", "param": None, "line": 1}


def batch(
    *, facts: dict[str, Any] | None = None, failures: tuple[str, ...] = (), **counts: int
) -> OpenAIBatch:
    """Return a loaded batch, whose last task ended a minute after it was made."""
    states = ("pending", "processing", "retrying", "succeeded", "dead", "cancelled")
    numbers = dict.fromkeys(states, 0) | counts
    return OpenAIBatch(
        batch=Batch(1, f"openai-batch_{NUMBER}", "docllm", cancelled=False),
        facts={
            "input_file_id": "file-1",
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "window_s": 86_400,
            **(facts or {}),
        },
        created_at=MADE,
        loaded_at=MADE + timedelta(seconds=2),
        cancelled_at=None,
        changed_at=MADE + timedelta(seconds=60),
        status=BatchStatus(
            name="b",
            counts={"total": sum(numbers.values()), **numbers},
            rate_per_s=0.0,
            eta_s=None,
            tokens_in=0,
            tokens_out=0,
            cost=0.0,
            failures=dict.fromkeys(failures, 1),
        ),
    )


STOPPED = MADE + timedelta(seconds=5)


@pytest.mark.parametrize(
    ("found", "state", "times"),
    [
        (replace(batch(), loaded_at=None), "validating", {}),
        (batch(pending=1, succeeded=1), "in_progress", {"in_progress_at": 2}),
        (batch(retrying=1), "in_progress", {"in_progress_at": 2}),
        (
            batch(succeeded=1, dead=1, failures=("dead BAD_REQUEST", "tried again EXPIRED")),
            "completed",
            {"in_progress_at": 2, "finalizing_at": 60, "completed_at": 60},
        ),
        (
            batch(succeeded=1, dead=1, failures=("dead EXPIRED",)),
            "expired",
            {"in_progress_at": 2, "expired_at": 60},
        ),
        (
            replace(batch(processing=1), cancelled_at=STOPPED),
            "cancelling",
            {"in_progress_at": 2, "cancelling_at": 5},
        ),
        (
            replace(batch(cancelled=1), cancelled_at=STOPPED),
            "cancelled",
            {"in_progress_at": 2, "cancelling_at": 5, "cancelled_at": 60},
        ),
        (
            replace(batch(facts={"errors": [ERROR]}), loaded_at=None, cancelled_at=STOPPED),
            "failed",
            {"failed_at": 5},
        ),
    ],
)
def test_a_state_and_its_times(found: OpenAIBatch, state: str, times: dict[str, int]) -> None:
    """Each state has the times of its way, and no other."""
    shown = batch_json(found)

    assert shown["status"] == state
    own = {"created_at": MADE_S, "expires_at": MADE_S + 86_400}
    given = {name: value for name, value in shown.items() if name.endswith("_at") and value}
    assert given == own | {name: MADE_S + after_s for name, after_s in times.items()}


def test_a_batch_has_files_once_it_has_ended() -> None:
    """An output file for what succeeded, an error file for what did not."""
    output, error = f"file-output-{NUMBER}", f"file-error-{NUMBER}"

    def ids(found: OpenAIBatch) -> tuple[str | None, str | None]:
        shown = batch_json(found)
        return shown["output_file_id"], shown["error_file_id"]

    assert ids(batch(pending=1, succeeded=1)) == (None, None)
    assert ids(batch(succeeded=1)) == (output, None)
    assert ids(batch(dead=1)) == (None, error)
    assert ids(batch(succeeded=1, dead=1)) == (output, error)
    assert view_of(output) == ("output", f"batch_{NUMBER}")
    assert view_of(f"{output}/..") is None


def test_a_task_that_was_late_has_the_apis_word() -> None:
    late = ExportedTask(
        task_id=1,
        key="a",
        status=Status.DEAD,
        counted_attempts=0,
        input=b"",
        tokens_in=0,
        tokens_out=0,
        cost_micro=0,
        result=None,
        letter=Letter("EXPIRED", "its deadline has passed", MADE),
    )

    line = view_line(late)

    assert line is not None
    assert b'"code":"batch_expired"' in line

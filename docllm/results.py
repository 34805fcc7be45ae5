"""What the methods of `docllm.Batch` return and raise."""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import orjson

from docllm.schemas.errors import DocllmError, InputError


@dataclass(frozen=True, slots=True)
class Reject:
    """A row, line or document that is no task. `row` counts from 1."""

    row: int
    field: str
    error: str
    fix: str

    def __str__(self) -> str:
        return f"row {self.row}: {' '.join(filter(None, (self.field, self.error)))}; {self.fix}"


class LoadError(InputError):
    """Nothing was loaded. The text names the first bad row and its field; `rejects` has all."""

    def __init__(self, text: str, rejects: tuple[Reject, ...] = ()) -> None:
        super().__init__(text)
        self.rejects = rejects


class WaitError(DocllmError):
    """A batch has dead tasks, and `fail_on_dead` was set."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What a `submit` did.

    `loaded` tasks are new, `twins` were loaded before. `warnings` are those of `docllm load`.
    """

    loaded: int
    twins: int
    rejects: tuple[Reject, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """The tasks of a batch by state.

    `done`: no task is open, and no load or replay adds to them. `cost` is in the unit of the
    prices, None if it is unknown.
    """

    pending: int = 0
    processing: int = 0
    retrying: int = 0
    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0
    done: bool = False
    cost: float | None = 0.0

    @property
    def total(self) -> int:
        """All tasks."""
        final = self.succeeded + self.dead + self.cancelled
        return self.pending + self.processing + self.retrying + final


@dataclass(frozen=True, slots=True)
class Result:
    """A task as `docllm export` writes it.

    `result` is the answer's text, or under a schema the parsed JSON or the pydantic model; None
    unless the task succeeded. `error` has `code` and `message` of a dead task. Tokens and cost are
    None if they are unknown. `finished_at` is in UTC.
    """

    id: str
    status: str
    result: Any
    error: dict[str, str] | None
    attempts: int
    model: str | None
    route: str | None
    tokens_in: int | None
    tokens_out: int | None
    cost: float | None
    finished_at: datetime | None


FIELDS = tuple(field.name for field in fields(Result))


def result_of(line: bytes, schema: Any = None, batch: str = "") -> Result:
    """Return the result of a line of `docllm export`, under a pydantic model as that model."""
    row = {name: value for name, value in orjson.loads(line).items() if name in FIELDS}
    if row["finished_at"] is not None:
        row["finished_at"] = datetime.fromisoformat(row["finished_at"])
    if row["status"] == "succeeded" and hasattr(schema, "model_validate"):
        try:
            row["result"] = schema.model_validate(row["result"])
        except ValueError as error:
            error.add_note(f"in the result of task {row['id']!r} of batch {batch!r}")
            raise
    return Result(**row)

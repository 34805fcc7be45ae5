"""Answers are written once, under names that no other claim overwrites, and kept if that fails."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest

from docllm.agent.execution import output_writer
from docllm.agent.execution.output_writer import (
    QUIET_S,
    RETRY_WRITE_S,
    TRY_S,
    WAITS_S,
    Outputs,
    names,
)
from docllm.agent.ports.outcome import Dead, Outcome, Snooze, Spent, Succeeded
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.codec import POINTER, VALUE
from docllm.schemas.task.result.output_pointer import OutputPointer
from tests.support.ledger import new_row

FOLDER = "s3://bucket/out/"
SPENT = Spent(model="m", tokens_in=10, cost_micro=7, call_id="c", duration_ms=3)
ANSWER = Succeeded(b"[1]", VALUE, SPENT, output_uri=FOLDER)
OWNER = 99
ROW = new_row(task_id=7, fence=2, task_key=b"docs/a.txt", batch="b")
NAME = f"{FOLDER}docs_a.txt-7-2"


@dataclass
class FakeClock:
    """Time that passes in sleeps."""

    at_s: float = 1000.0

    def now_s(self) -> float:
        return self.at_s

    def utc_s(self) -> float:
        return self.at_s

    async def sleep(self, delay_s: float) -> None:
        self.at_s += delay_s


@dataclass
class FakeStore:
    """Objects in memory; `faults` are those of the next writes, None for a good one."""

    objects: dict[str, bytes] = field(default_factory=dict)
    faults: list[ObjectFault | None] = field(default_factory=list)
    hangs: bool = False

    async def put_new(self, uri: str, content: bytes) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise ObjectError(fault, f"{uri} fails")
        if uri in self.objects:
            raise ObjectError(ObjectFault.EXISTS, f"{uri} exists")
        self.objects[uri] = content

    async def get(self, uri: str, *, limit: int) -> bytes:
        if len(self.objects[uri]) > limit:
            raise ObjectError(ObjectFault.TOO_LARGE, f"{uri} is larger")
        return self.objects[uri]


@dataclass
class Parts:
    store: FakeStore = field(default_factory=FakeStore)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.outputs = Outputs(store=self.store, allow=["s3://bucket/"], clock=self.clock)

    def write(
        self, answer: Succeeded = ANSWER, *, owner: int = OWNER, until_s: float = 9999.0
    ) -> Outcome:
        return run(self.outputs.write(answer, ROW, owner=owner, until_s=until_s))


def run(call: Coroutine[Any, Any, Outcome]) -> Outcome:
    return asyncio.run(call)


def pointer_of(outcome: Outcome) -> OutputPointer:
    assert isinstance(outcome, Succeeded)
    assert (outcome.codec, outcome.output_uri) == (POINTER, "")
    return OutputPointer.of_stored(outcome.body)


def test_the_answer_becomes_the_pointer_to_its_object() -> None:
    """Costs and follow-ups stay those of the answer."""
    parts = Parts()

    outcome = parts.write()

    pointer = pointer_of(outcome)
    assert pointer.uri == f"{NAME}.json"
    assert pointer.result_in(parts.store.objects[pointer.uri]) == b"[1]"
    assert orjson.loads(parts.store.objects[pointer.uri]) == {
        "id": "docs/a.txt",
        "batch": "b",
        "result": [1],
    }
    assert outcome == replace(ANSWER, body=pointer.stored(), codec=POINTER, output_uri="")


def test_an_object_that_a_line_names_is_not_written_before_the_settle() -> None:
    """The answer lies beside it, under a name of its own, and keeps the name for the copy."""
    parts = Parts()

    outcome = parts.write(replace(ANSWER, output_uri=f"{FOLDER}own.json"))

    assert isinstance(outcome, Succeeded)
    assert (outcome.codec, outcome.output_uri) == (POINTER, f"{FOLDER}own.json")
    assert list(parts.store.objects) == [f"{NAME}.json"]


def test_an_equal_object_of_an_earlier_try_serves() -> None:
    """A write whose answer was lost, or an attempt that died before its settle, left it."""
    parts = Parts()
    first = pointer_of(parts.write())

    again = pointer_of(parts.write(owner=100))

    assert again == first
    assert len(parts.store.objects) == 1


def test_another_object_of_the_name_is_left_alone() -> None:
    """A killed attempt at the same fence left another answer: the next claim takes a new name."""
    parts = Parts()
    parts.store.objects[f"{NAME}.json"] = b"longer than the answer, of another attempt" * 9
    parts.store.objects[f"{NAME}-99.json"] = b"{"
    before = dict(parts.store.objects)

    pointer = pointer_of(parts.write())

    assert pointer.uri == f"{NAME}-99-2.json"
    assert {uri: parts.store.objects[uri] for uri in before} == before


def test_names_are_safe_for_any_id() -> None:
    """No id leads to another folder, hides its file, or makes the name too long."""
    for key in ("../../etc/passwd", ".hidden", "a b?c#d%2f", "ü" * 90, "x" * 191, "/"):
        name = next(names(replace(ROW, task_key=key.encode()), OWNER))
        assert name.endswith("-7-2.json")
        assert not name.startswith(".")
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
        assert len(name) < 150
    assert len(set(names(ROW, OWNER))) == 20


def test_a_failure_that_passes_is_tried_again_at_once() -> None:
    """Two short waits bridge a hiccup."""
    parts = Parts(FakeStore(faults=[ObjectFault.OUTAGE, ObjectFault.DENIED]))

    pointer_of(parts.write())

    assert parts.clock.at_s == 1000.0 + sum(WAITS_S)
    assert parts.outputs.refusal(FOLDER) is None


@pytest.mark.parametrize("fault", [ObjectFault.OUTAGE, ObjectFault.DENIED, ObjectFault.NO_BUCKET])
def test_a_paid_answer_is_kept_while_its_store_fails(fault: ObjectFault) -> None:
    """The answer's costs are booked at once, and the next claim writes it without a call."""
    parts = Parts(FakeStore(faults=[fault] * 3))

    outcome = parts.write()

    assert isinstance(outcome, Snooze)
    assert (outcome.spent, outcome.delay_s) == (SPENT, RETRY_WRITE_S)
    assert outcome.failure.error_class is ErrorClass.OUTPUT_UNWRITABLE
    assert NAME in outcome.failure.text
    assert outcome.answer is not None
    assert outcome.answer.spent == Spent(model="m", call_id="c")
    written = parts.write(outcome.answer)
    assert pointer_of(written).uri == f"{NAME}.json"
    assert isinstance(written, Succeeded)
    assert written.spent == outcome.answer.spent


def test_no_try_begins_that_could_outlast_the_claim() -> None:
    """Else another agent would take the task, and call again; the answer is kept instead."""
    parts = Parts(FakeStore(faults=[ObjectFault.OUTAGE] * 2))

    outcome = parts.write(until_s=1000.0 + WAITS_S[0] + TRY_S + 1)

    assert isinstance(outcome, Snooze)
    assert outcome.answer is not None
    assert (parts.store.faults, parts.clock.at_s) == ([], 1000.0 + WAITS_S[0])


def test_no_call_is_made_for_a_store_that_fails() -> None:
    """Else each new answer would be one more to keep, while a kept one is tried all the time."""
    parts = Parts(FakeStore(faults=[ObjectFault.OUTAGE] * 3))
    parts.write()

    refusal = parts.outputs.refusal(FOLDER)

    assert isinstance(refusal, Snooze)
    assert (refusal.spent, refusal.answer) == (Spent(), None)
    assert 0 < refusal.delay_s <= RETRY_WRITE_S
    assert parts.outputs.refusal("s3://bucket/other/") is None
    parts.clock.at_s += RETRY_WRITE_S + TRY_S  # a kept answer is tried now
    assert isinstance(parts.outputs.refusal(FOLDER), Snooze)
    parts.write()
    assert parts.outputs.refusal(FOLDER) is None


def test_one_call_is_made_when_no_answer_is_left_to_be_tried() -> None:
    """The call's answer shows whether the store works; all the others still wait."""
    parts = Parts(FakeStore(faults=[ObjectFault.OUTAGE] * 3))
    parts.write()
    parts.clock.at_s += QUIET_S

    assert parts.outputs.refusal(FOLDER) is None
    assert isinstance(parts.outputs.refusal(FOLDER), Snooze)


def test_a_folder_that_is_not_allowed_is_refused_before_a_call() -> None:
    """The text names the setting, and none of its values."""
    for folder in ("s3://other/", "file:///bucket/", "s3://bucket/../other/", "s3://bucket.evil/"):
        refusal = Parts().outputs.refusal(folder)
        assert isinstance(refusal, Dead)
        assert refusal.failure.error_class is ErrorClass.OUTPUT_REFUSED
        assert "DOCLLM_DOCUMENT_ALLOW" in refusal.failure.text
        assert "s3://bucket/ " not in refusal.failure.text


def test_a_name_that_cannot_be_is_a_dead_letter() -> None:
    """Another try would fail alike, so the task dies, with its costs."""
    outcome = Parts(FakeStore(faults=[ObjectFault.WRONG_NAME])).write()
    assert isinstance(outcome, Dead)
    assert (outcome.failure.error_class, outcome.spent) == (ErrorClass.OUTPUT_REFUSED, SPENT)


def test_a_store_that_hangs_is_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A try ends; the answer is kept."""
    monkeypatch.setattr(output_writer, "TRY_S", 0.001)
    outcome = Parts(FakeStore(hangs=True)).write()
    assert isinstance(outcome, Snooze)
    assert "did not answer within" in outcome.failure.text

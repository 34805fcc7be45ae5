"""What is noted during an attempt is settled with its result, whatever the handler returns."""

from dataclasses import replace
from typing import Any

import pytest

from agent.handlers.attempt_context import AttemptContext
from agent.handlers.calls import attempt_calls
from agent.handlers.calls.judging import judged
from agent.handlers.calls.results import Answer
from agent.ports.outcome import Dead, Retry, Succeeded
from schemas.task.result.notes import NoteKind
from tests.support.handlers import handlers_harness

BODY = {"model": "m", "messages": []}


@pytest.mark.parametrize("is_value", [True, False])
def test_notes_go_with_a_success(*, is_value: bool) -> None:
    """Texts of one kind are collected, equal ones once; a kind without texts is a note too."""

    async def notes(context: AttemptContext) -> Any:
        context.note(NoteKind.OMITTED, "page 3")
        answer = await context.complete(BODY)
        context.note(NoteKind.OMITTED, "page 3", "page 7")
        context.note(NoteKind.TRUNCATED_INPUT)
        return answer.text if is_value else answer

    outcome = handlers_harness(document=notes).run()

    assert isinstance(outcome, Succeeded)
    assert outcome.notes == (
        (NoteKind.OMITTED, ("page 3", "page 7")),
        (NoteKind.TRUNCATED_INPUT, ()),
    )


def test_an_attempt_that_notes_nothing_has_no_notes() -> None:
    outcome = handlers_harness().run()

    assert isinstance(outcome, Succeeded)
    assert outcome.notes == ()


def test_the_notes_of_an_answer_go_with_what_a_handler_makes_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The judge notes what it mended; a handler that returns other JSON does not lose that."""

    async def two_calls(context: AttemptContext) -> Any:
        answers = [await context.complete(BODY) for _ in range(2)]
        return [answer.text for answer in answers]

    monkeypatch.setattr(attempt_calls, "judged", mended)

    outcome = handlers_harness(document=two_calls).run()

    assert isinstance(outcome, Succeeded)
    assert outcome.notes == ((NoteKind.MENDED, ("surrogate",)),)


async def mended(*call: Any) -> Any:
    outcome = await judged(*call)
    assert isinstance(outcome, Succeeded)
    return replace(outcome, notes=((NoteKind.MENDED, ("surrogate",)),))


def test_a_failed_attempt_has_no_notes() -> None:
    async def fails(context: AttemptContext) -> Answer:
        context.note(NoteKind.OMITTED, "page 3")
        raise ValueError("no")

    assert isinstance(handlers_harness(document=fails).run(), Retry | Dead)


def test_a_run_that_begins_again_forgets_its_notes() -> None:
    """The document is read again then, and says again what it leaves out."""

    async def twice(context: AttemptContext) -> Any:
        context.note(NoteKind.OMITTED, "page 3")
        context.begin_again()
        context.note(NoteKind.OMITTED, "page 7")
        return []

    outcome = handlers_harness(document=twice).run()

    assert isinstance(outcome, Succeeded)
    assert outcome.notes == ((NoteKind.OMITTED, ("page 7",)),)

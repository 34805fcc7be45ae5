"""What is noted during an attempt is settled with its result, whatever the handler returns."""

from typing import Any

import orjson
import pytest

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.calls.results import Answer
from docllm.agent.ports import Call, Reply
from docllm.agent.ports.outcome import Dead, Retry, Succeeded
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.notes import NoteKind
from tests.support.handlers import FakeLLM, completion, handlers_harness, succeeded

BODY: dict[str, Any] = {"model": "m", "messages": []}


@pytest.mark.parametrize("is_value", [True, False])
def test_notes_go_with_a_success(*, is_value: bool) -> None:
    """Texts of one kind are collected, equal ones once; a kind without texts is a note too."""

    async def notes(context: AttemptContext) -> Any:
        context.note(NoteKind.OMITTED, "page 3")
        answer = await context.complete(BODY)
        context.note(NoteKind.OMITTED, "page 3", "page 7")
        context.note(NoteKind.TRUNCATED_INPUT)
        return answer.text if is_value else answer

    outcome = succeeded(handlers_harness(document=notes).run())

    assert outcome.notes == (
        (NoteKind.OMITTED, ("page 3", "page 7")),
        (NoteKind.TRUNCATED_INPUT, ()),
    )


def test_an_attempt_that_notes_nothing_has_no_notes() -> None:
    outcome = succeeded(handlers_harness().run())

    assert outcome.notes == ()


def cut_answer() -> Reply:
    """The answer of a server whose context is 4,096 tokens."""
    reply = orjson.loads(completion().body)
    return Reply(200, {}, orjson.dumps(reply | {"usage": {"prompt_tokens": 4096}}))


LONG_TEXT = "Sales rose again. " * 9_000
LONG = {"id": "a", "prompt": "Sum: {document}", "input": {"text": LONG_TEXT}}
CONTEXT = 1024


def test_an_answer_to_a_part_of_the_prompt_is_noted() -> None:
    outcome = succeeded(handlers_harness(cut_answer()).run(LONG))

    assert outcome.notes == ((NoteKind.TRUNCATED_INPUT, ()),)


def test_the_note_of_an_answer_goes_with_what_a_handler_makes_of_it() -> None:
    """A handler that returns other JSON does not lose it, and two calls make one note."""

    async def two_calls(context: AttemptContext) -> Any:
        messages = [{"role": "user", "content": LONG_TEXT}]
        answers = [await context.complete(BODY | {"messages": messages}) for _ in range(2)]
        return [answer.text for answer in answers]

    outcome = succeeded(handlers_harness(cut_answer(), document=two_calls).run())

    assert outcome.notes == ((NoteKind.TRUNCATED_INPUT, ()),)


def test_a_type_may_ask_for_answers_to_the_whole_input() -> None:
    """Its task is dead at once, with the setting that helps; the answer's cost is kept."""
    harness = handlers_harness(cut_answer(), types={"document": TypeConfig(whole_input=True)})

    outcome = harness.run(LONG)

    assert isinstance(outcome, Dead)
    assert outcome.failure.error_class == ErrorClass.INPUT_CUT
    assert "4,096 tokens" in outcome.failure.text
    assert "OLLAMA_CONTEXT_LENGTH" in outcome.failure.text
    assert outcome.spent.tokens_in == 4096
    assert isinstance(harness.run(LONG | {"input": {"text": "short"}}), Succeeded)


def test_map_reduce_splits_a_part_that_the_server_has_cut() -> None:
    """The parts of unknown models are guessed; the server's count shows that they were too long."""
    llm = CuttingLLM([])
    types = {"map-reduce": TypeConfig(whole_input=True)}

    outcome = succeeded(handlers_harness(llm=llm, types=types).run(LONG | {"type": "map-reduce"}))

    assert outcome.notes == ()
    lengths = [len(call.body) for call in llm.calls]
    assert max(lengths) > 4 * CONTEXT
    assert sum(lengths) > 1.5 * len(LONG_TEXT)  # a part that was cut was asked for again, in halves


class CuttingLLM(FakeLLM):
    """Counts four bytes a token, and reads no more than its context."""

    async def complete(self, call: Call) -> Reply:
        self.calls.append(call)
        usage = {"prompt_tokens": min(CONTEXT, len(call.body) // 4), "completion_tokens": 2}
        reply = orjson.loads(completion().body)
        return Reply(200, {}, orjson.dumps(reply | {"usage": usage}))


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

    outcome = succeeded(handlers_harness(document=twice).run())

    assert outcome.notes == ((NoteKind.OMITTED, ("page 7",)),)

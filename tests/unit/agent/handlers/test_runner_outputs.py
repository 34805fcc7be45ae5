"""Where the result of a task goes: by its line, else by its batch, else into the ledger."""

import orjson
import pytest

from docllm.agent.ports.outcome import Dead, Failure, Outcome, Spent, Succeeded
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.codec import COMPLETION, JSON_COMPLETION
from tests.support.handlers import TASK, completion, handlers_harness, succeeded

BATCH, OWN = "s3://batch/", "s3://own/"


@pytest.mark.parametrize(
    ("line", "batch", "output"),
    [({}, "", ""), ({}, BATCH, BATCH), ({"output_uri": OWN}, BATCH, OWN)],
)
def test_the_line_decides_before_its_batch(line: dict[str, str], batch: str, output: str) -> None:
    """A result without an output stays in the ledger."""
    outcome = succeeded(handlers_harness().run(TASK | line, output_uri=batch))

    assert (outcome.output_uri, outcome.codec) == (output, COMPLETION)


def test_an_answer_under_a_schema_says_so_itself() -> None:
    """Whoever writes the object later does not have the task's line."""
    task = TASK | {"schema": {"type": "object"}}
    outcome = succeeded(handlers_harness(completion("{}")).run(task, output_uri=BATCH))
    assert outcome.codec == JSON_COMPLETION


def test_no_call_is_made_for_an_output_that_is_refused() -> None:
    """The refusal is the end of the attempt, for this output alone."""
    refused = Dead(Failure(ErrorClass.OUTPUT_REFUSED, "x"), Spent())
    harness = handlers_harness()

    def refusal(uri: str) -> Outcome | None:
        return refused if uri == OWN else None

    line = orjson.dumps(TASK | {"output_uri": OWN})
    assert harness.run(line, output_uri=BATCH, output_refusal=refusal) is refused
    assert not harness.llm.calls
    assert isinstance(harness.run(TASK, output_uri=BATCH, output_refusal=refusal), Succeeded)

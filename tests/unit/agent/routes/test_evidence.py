"""What the end of a call says about its route."""

import pytest

from docllm.agent.judge import CLASSES, Effect, judge
from docllm.agent.judge.classes import ClassRule
from docllm.agent.ports import CallFailed, Reply
from docllm.agent.ports.outcome import (
    Dead,
    Failure,
    Retry,
    Snooze,
    Spent,
)
from docllm.agent.routes.evidence import RouteEvidence, by_answer, by_outcome
from docllm.schemas.task.failures import ErrorClass
from tests.support.replies import FACTS


@pytest.mark.parametrize(("name", "rule"), CLASSES.items())
def test_a_failure_has_the_effect_that_the_table_states(name: ErrorClass, rule: ClassRule) -> None:
    """A failure affects the route as the table says, whatever happens to its task."""
    failure = Failure(name, "text")
    outcomes = (
        Retry(failure, Spent(), "30s", 30.0),
        Snooze(failure, Spent(), 1.0),
        Dead(failure, Spent()),
    )

    assert {by_outcome(outcome) for outcome in outcomes} == {
        RouteEvidence(rule.route, f"{name}: text", name)
    }


@pytest.mark.parametrize("page", [b"<html>maintenance</html>", b"", b"[]"])
def test_a_page_in_place_of_a_completion_is_an_outage(page: bytes) -> None:
    """A web page instead of a completion is an outage, whoever asked.

    It does not prove that the provider works, and a maintenance would use up the attempts of every
    task.
    """
    reply = Reply(200, {}, page)

    assert by_outcome(judge(reply, FACTS)).effect is by_answer(reply).effect is Effect.OUTAGE


@pytest.mark.parametrize(
    ("answer", "effect"),
    [
        (
            Reply(
                200, {}, b'{"choices": [{"message": {"content": "OK"}, "finish_reason": "length"}]}'
            ),
            Effect.UP,
        ),
        (Reply(200, {}, b"<html>maintenance</html>"), Effect.OUTAGE),
        (Reply(200, {}, b'{"error": {"message": "away", "code": 503}}'), Effect.OUTAGE),
        (Reply(400, {}, b'{"error": {"message": "max_tokens is not supported"}}'), Effect.UP),
        (Reply(503, {}, b""), Effect.OUTAGE),
        (Reply(429, {}, b""), Effect.REFUSAL),
        (Reply(401, {}, b""), Effect.LOCKED),
        (CallFailed(ErrorClass.NETWORK, "refused"), Effect.OUTAGE),
        (CallFailed(ErrorClass.AMBIGUOUS, "cut"), Effect.OUTAGE),
    ],
)
def test_the_answer_to_the_prompt_is_judged_as_any_other(
    answer: Reply | CallFailed, effect: Effect
) -> None:
    """The prompt's answer is judged by status and body; one that was cut short is an answer."""
    assert by_answer(answer).effect is effect

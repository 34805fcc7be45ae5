"""A refusal as for a wrong key: the cheap prompt shows whether it was about one document."""

from dataclasses import replace

import pytest

from docllm.agent.judge import Effect
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Dead, Outcome, Retry, Snooze, Spent
from docllm.agent.routes import Router
from docllm.agent.routes.evidence import RouteEvidence, by_answer
from docllm.schemas.task.failures import Disposition, ErrorClass
from tests.support.routes import GOOD, ROUTE, call, permitted, routes, snoozed

FORBIDDEN = snoozed("AUTH")
FORBIDDEN = replace(FORBIDDEN, failure=replace(FORBIDDEN.failure, may_be_of_task=True))
ALONE = replace(FORBIDDEN.failure, error_class=ErrorClass.BAD_REQUEST)
DEAD_ALONE = Dead(ALONE, Spent(), Disposition.EXHAUSTED)
ANSWERED = RouteEvidence(Effect.UP)
REFUSED = by_answer(Reply(403, {}, b'{"error": "Forbidden"}'))
UNUSABLE = by_answer(Reply(400, {}, b'{"error": "no such parameter"}'))


def asked(router: Router, at_s: float, evidence: RouteEvidence) -> None:
    """Answer the prompt that is due."""
    (prompt,) = router.prompts(at_s)
    router.answered(prompt, evidence, at_s + 0.1)


@pytest.mark.parametrize("has_answered", [False, True])
def test_the_first_refusal_sends_the_prompt_at_once(*, has_answered: bool) -> None:
    """One prompt at a time is sent, on a route that goes on."""
    router = routes()
    if has_answered:
        call(router, GOOD, 99.0)
    assert router.prompts(100.0) == []

    call(router, FORBIDDEN, 100.0)

    (prompt,) = router.prompts(100.1)
    assert (prompt.route, prompt.task_id) == (ROUTE, None)
    assert router.prompts(100.2) == []
    assert router.room(ROUTE, 100.2, 0, 8) == 8
    assert not router.closed(ROUTE, 100.2)


def test_a_refused_prompt_parks_the_route() -> None:
    """The key, the model or the address is wrong: one refusal and one prompt show it."""
    router = routes()
    call(router, FORBIDDEN, 100.0)
    asked(router, 100.1, REFUSED)

    (report,) = router.reports((), 100.3, 0.0)
    assert (report.state, report.error_class) == ("parked", "AUTH")


def test_an_answered_prompt_shows_that_the_task_is_refused_alone() -> None:
    """However many documents a firewall refuses, the route never parks."""
    router = routes()
    for second in range(100, 130):
        for task_id in range(5):
            if router.room(ROUTE, second, 0, 8):
                call(router, FORBIDDEN, float(second), task_id)
        asked(router, second + 0.1, ANSWERED)

        assert router.answered_since(ROUTE, float(second))
        assert not router.closed(ROUTE, second + 0.2)


def test_no_call_starts_after_a_run_of_refusals_until_the_prompt_has_ended() -> None:
    """A wrong key costs a few calls, not one for each waiting task."""
    router = routes()
    for _ in range(3):
        call(router, FORBIDDEN, 100.0)

    assert router.room(ROUTE, 100.0, 0, 64) == 0
    assert router.begin(ROUTE, 7, 100.0) is None
    assert not router.closed(ROUTE, 100.0)

    asked(router, 100.1, ANSWERED)

    assert router.room(ROUTE, 100.3, 0, 64) == 64


def test_a_prompt_that_shows_nothing_leaves_the_run_to_decide() -> None:
    """A prompt that the provider cannot read neither clears the key nor parks the route alone."""
    router = routes()
    call(router, FORBIDDEN, 100.0)
    asked(router, 100.1, UNUSABLE)
    assert not router.closed(ROUTE, 100.3)
    assert not router.answered_since(ROUTE, 99.0)

    for _ in range(2):
        call(router, FORBIDDEN, 100.4)
    asked(router, 100.5, UNUSABLE)

    assert router.closed(ROUTE, 100.7)


def test_no_prompt_is_sent_if_a_later_call_was_answered() -> None:
    """The answer to another call, begun after the refusal, shows the same for nothing."""
    router = routes()
    call(router, FORBIDDEN, 100.0)
    call(router, GOOD, 100.1)

    assert router.prompts(100.2) == []


def test_a_refusal_while_the_prompt_runs_asks_again() -> None:
    """A prompt that began before a refusal says nothing about it."""
    router = routes()
    call(router, FORBIDDEN, 100.0)
    (prompt,) = router.prompts(100.1)
    call(router, FORBIDDEN, 100.2, task_id=2)
    router.answered(prompt, ANSWERED, 100.3)

    assert not router.answered_since(ROUTE, 100.2)
    asked(router, 100.4, ANSWERED)
    assert router.answered_since(ROUTE, 100.2)


def test_a_refused_key_itself_is_never_doubted() -> None:
    """A 401 is about the key: it parks the route as before, without a prompt."""
    router = routes()
    for _ in range(3):
        assert isinstance(call(router, snoozed("AUTH"), 100.0), Snooze)
        assert router.prompts(100.1) == []

    assert router.closed(ROUTE, 100.0)


def test_a_prompt_of_before_a_stop_says_nothing_after_it() -> None:
    """A question ends with a change of the route's state."""
    router = routes()
    call(router, FORBIDDEN, 100.0)
    (prompt,) = router.prompts(100.1)
    for _ in range(2):
        call(router, snoozed("MONEY"), 100.2)
    assert router.closed(ROUTE, 100.2)

    router.answered(prompt, ANSWERED, 100.3)
    assert router.closed(ROUTE, 100.3)
    router.resume(ROUTE, 100.4)

    assert router.prompts(100.5) == []
    assert permitted(router, 100.5)


@pytest.mark.parametrize("end", [Retry(ALONE, Spent(), "30s", 30.0), DEAD_ALONE])
def test_a_document_that_is_refused_alone_says_nothing_about_the_route(end: Outcome) -> None:
    """Neither that the provider works nor that it fails; but the key may be refused since then."""
    router = routes()
    for second in range(100, 160):
        assert call(router, end, float(second)) is end
        assert not router.answered_since(ROUTE, 0.0)
        assert not router.closed(ROUTE, second + 0.5)

    asked(router, 160.0, REFUSED)

    assert router.closed(ROUTE, 161.0)


@pytest.mark.parametrize("end", [Retry(ALONE, Spent(), "30s", 30.0), DEAD_ALONE])
def test_a_refusal_alone_on_a_route_that_is_parked_meanwhile_is_not_counted(end: Outcome) -> None:
    """The key is refused to all by now."""
    router = routes()
    late = permitted(router, 99.0)
    call(router, FORBIDDEN, 100.0)
    asked(router, 100.1, REFUSED)

    assert isinstance(router.ended(late, end, 101.0), Snooze)


def test_a_refused_prompt_parks_no_route_that_answers_meanwhile() -> None:
    """A key that is accepted at times is asked about again, until all calls are refused."""
    router = routes()
    for second in range(100, 120):
        call(router, FORBIDDEN, float(second))
        (prompt,) = router.prompts(second + 0.1)
        call(router, GOOD, second + 0.2)
        router.answered(prompt, REFUSED, second + 0.3)

        assert not router.closed(ROUTE, second + 0.4)
        asked(router, second + 0.5, ANSWERED)

    call(router, FORBIDDEN, 120.0)
    asked(router, 120.1, REFUSED)

    assert router.closed(ROUTE, 121.0)

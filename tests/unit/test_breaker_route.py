"""One route: when calls start on it, and what a failure there means for the task."""

import logging

import pytest

from agent.breaker.told import Told, by_answer, by_outcome
from agent.outcome import COMPLETION, Cancelled, Dead, Failure, Outcome, Released, Retry, Snooze, Spent, Succeeded
from agent.policy import CLASSES, Effect, ErrorClass, judge
from agent.ports import CallFailed, Reply
from tests.unit.breakers import GOOD, OF, ROUTE, admitted, call, exhausted, failed, routes, snoozed, stopped
from tests.unit.judged import TERMS


def test_a_route_that_is_well_fills_all_slots() -> None:
    """As many calls as there are free slots, and never less than none."""
    table = routes()

    assert [table.room(ROUTE, 0.0, running, 64) for running in (0, 60, 70)] == [64, 4, 0]
    assert (table.notice(0.0), table.closed(ROUTE, 0.0), table.closed_for_s(ROUTE, 0.0)) == ("", False, 0.0)


# ---- outages


@pytest.mark.parametrize("error_class", OF[Effect.OUTAGE])
def test_a_run_of_failures_stops_it(error_class: str) -> None:
    """Nine are the tasks' affair; at the tenth nothing starts for 2 s."""
    table = routes()
    for _ in range(9):
        call(table, failed(error_class), 100.0)
    assert table.room(ROUTE, 100.0, 0, 64) == 64

    call(table, failed(error_class), 100.0)

    assert [table.room(ROUTE, at_s, 0, 64) for at_s in (100.0, 101.9, 102.0)] == [0, 0, 1]
    assert table.closed(ROUTE, 500.0)
    assert table.closed_for_s(ROUTE, 100.5) == pytest.approx(1.5)
    assert table.notice(100.0) == f"route default waits 2 s: {error_class}: 503: away"
    assert "tries one call" in table.notice(102.0)


def test_half_of_the_calls_stop_it_too() -> None:
    """A provider that fails every other time is no provider."""
    table = routes()
    for _ in range(24):
        call(table, failed(), 100.0)
        call(table, GOOD, 100.0)
    assert not table.closed(ROUTE, 100.0)

    call(table, failed(), 100.0)
    call(table, failed(), 100.0)

    assert table.closed(ROUTE, 100.0)


@pytest.mark.parametrize("outcome", [failed(), exhausted()])
def test_what_an_outage_did_is_not_counted(outcome: Outcome) -> None:
    """The failure that stops the route, and all that end after it, come back uncounted with the same reason."""
    table = routes()
    tickets = [admitted(table, 100.0, task_id) for task_id in range(64)]
    settled = [table.ended(ticket, outcome, 101.0) for ticket in tickets]

    assert settled[:9] == [outcome] * 9
    assert {type(one) for one in settled[9:]} == {Snooze}
    assert {(one.failure, one.spent, one.delay_s) for one in settled[9:] if isinstance(one, Snooze)} == {
        (failed().failure, failed().spent, 2.0)
    }


@pytest.mark.parametrize("outcome", [failed("BAD_OUTPUT"), failed("HANDLER"), Dead(failed().failure, Spent()), GOOD, Released()])
def test_what_no_outage_did_is_settled_as_it_is(outcome: Outcome) -> None:
    """Also when it ends while the route is stopped."""
    table = routes()
    late = admitted(table, 99.0)
    for _ in range(10):
        call(table, failed(), 100.0)

    assert table.ended(late, outcome, 101.0) is outcome


def test_one_probe_at_a_time() -> None:
    """While it runs no other starts; a claim that comes too late is given back."""
    table = stopped()
    assert table.room(ROUTE, 102.0, 0, 64) == 1
    probe = admitted(table, 102.0)

    assert probe.limit_s == 60.0
    assert (table.room(ROUTE, 120.0, 1, 64), table.admit(ROUTE, 2, 120.0)) == (0, None)
    table.ended(probe, failed(), 121.0)
    assert table.room(ROUTE, 121.0, 0, 64) == 1


def test_calls_that_hang_since_before_leave_room_for_a_probe() -> None:
    """But the slots bound everything."""
    table = stopped()

    assert (table.room(ROUTE, 102.0, 63, 64), table.room(ROUTE, 102.0, 64, 64)) == (1, 0)


@pytest.mark.parametrize("outcome", [GOOD, *(failed(name) for name in OF[Effect.UP]), *(snoozed(name) for name in OF[Effect.LOCKED])])
def test_any_answer_to_a_probe_starts_it_again(outcome: Outcome) -> None:
    """Also one that is bad for the task, or for the account: the provider is there. One call goes first."""
    table = stopped()
    call(table, outcome, 102.0)

    assert (table.room(ROUTE, 102.0, 0, 64), table.closed(ROUTE, 102.0), table.notice(102.0)) == (1, False, "")


@pytest.mark.parametrize("outcome", [failed("HANDLER"), Succeeded(b"1", COMPLETION, Spent()), Released(), Cancelled(), snoozed("INTERNAL")])
def test_a_probe_that_met_no_provider_tells_nothing(outcome: Outcome) -> None:
    """The route stays as it is, and the next probe keeps its time; it is the prompt, as the next tasks may be of the same kind."""
    table = stopped()
    assert call(table, outcome, 102.0) is outcome

    assert [table.room(ROUTE, at_s, 0, 64) for at_s in (102.0, 104.9, 105.0)] == [0, 0, 0]
    assert table.prompts(104.9) == []
    (prompt,) = table.prompts(105.0)
    table.answered(prompt, Told(Effect.UP), 105.1)
    assert not table.closed(ROUTE, 105.1)


def test_a_prompt_that_tells_nothing_makes_room_for_a_task() -> None:
    """It ended in a bug, perhaps; the provider may answer a task."""
    table = stopped()
    call(table, Released(), 102.0)
    table.room(ROUTE, 105.0, 0, 64)
    (prompt,) = table.prompts(105.0)
    table.answered(prompt, Told(Effect.NONE), 105.1)

    assert (table.room(ROUTE, 109.0, 0, 64), table.prompts(109.0)) == (1, [])


def test_slow_start_after_a_stop() -> None:
    """One call, then twice as many with each success; a claim that took more is given back."""
    table = stopped()
    call(table, GOOD, 102.0)

    seen = []
    for now_s in (102.0, 103.0, 104.0, 105.0):
        seen.append(table.room(ROUTE, now_s, 0, 64))
        running = [admitted(table, now_s) for _ in range(seen[-1])]
        assert (table.admit(ROUTE, 99, now_s) is None) is (seen[-1] < 64)
        for ticket in running:
            table.ended(ticket, GOOD, now_s + 0.5)

    assert seen == [1, 2, 8, 64]


def test_calls_from_before_a_stop_take_no_room_in_slow_start() -> None:
    """They are not known to be the present provider's; only the slots count them."""
    table = routes()
    orphans = [admitted(table, 99.0) for _ in range(20)]
    for _ in range(10):
        call(table, failed(), 100.0)
    call(table, GOOD, 102.0)

    assert (table.room(ROUTE, 102.0, 20, 64), table.room(ROUTE, 102.0, 20, 20)) == (1, 0)
    for ticket in orphans:
        table.ended(ticket, failed(), 103.0)
    assert table.room(ROUTE, 103.0, 0, 64) == 1


def test_late_failures_change_nothing() -> None:
    """What began before the last change neither stops a route again nor moves the next probe; nor does it count."""
    table = routes()
    before = [admitted(table, 99.0, task_id) for task_id in range(40)]
    for ticket in before[:10]:
        table.ended(ticket, failed(), 100.0)
    for ticket in before[10:20]:
        assert isinstance(table.ended(ticket, failed(), 101.9), Snooze)
    assert table.room(ROUTE, 102.0, 0, 64) == 1
    call(table, GOOD, 102.0)

    late = [table.ended(ticket, failed("AMBIGUOUS"), 103.0) for ticket in before[20:]]

    assert not table.closed(ROUTE, 103.0)
    assert {type(one) for one in late} == {Snooze}


def test_late_successes_change_nothing() -> None:
    """A call that the provider answered before it failed is no proof that it is well."""
    table = routes()
    late = admitted(table, 99.0)
    for _ in range(10):
        call(table, failed(), 100.0)
    table.ended(late, GOOD, 101.0)

    assert table.closed(ROUTE, 101.0)


# ---- the task that may itself be what fails


def test_the_last_task_still_dies() -> None:
    """It fails as a probe twice; then a cheap prompt goes, whose success lets the task's next failure count."""
    table = stopped(slots=3)
    assert isinstance(call(table, exhausted(), 102.0, task_id=7), Snooze)
    assert isinstance(call(table, exhausted(), 105.0, task_id=7), Snooze)
    assert (table.room(ROUTE, 109.0, 0, 3), table.admit(ROUTE, 7, 109.0)) == (0, None)
    (prompt,) = table.prompts(109.0)
    assert (prompt.task_id, prompt.limit_s) == (None, 60.0)

    table.answered(prompt, Told(Effect.UP), 109.2)

    assert table.room(ROUTE, 109.2, 0, 3) == 1
    assert call(table, exhausted(), 109.3, task_id=7) == exhausted()


def test_a_prompt_that_fails_leaves_it_stopped() -> None:
    """Then it is the provider, and the task is not counted."""
    table = stopped()
    for now_s in (102.0, 105.0):
        call(table, failed(), now_s, task_id=7)
    table.room(ROUTE, 109.0, 0, 64)
    (prompt,) = table.prompts(109.0)
    assert table.prompts(109.0) == []

    table.answered(prompt, Told(Effect.OUTAGE, "SERVER: 503"), 109.5)

    assert table.room(ROUTE, 112.9, 0, 64) == 0
    assert isinstance(call(table, failed(), 113.1, task_id=7), Snooze)


def test_a_prompt_that_is_refused_proves_the_provider_up() -> None:
    """The route goes again, after a pause."""
    table = stopped()
    for now_s in (102.0, 105.0):
        call(table, failed(), now_s, task_id=7)
    table.room(ROUTE, 109.0, 0, 64)
    (prompt,) = table.prompts(109.0)

    table.answered(prompt, Told(Effect.REFUSAL, "RATE: 429"), 109.0)

    assert [table.room(ROUTE, at_s, 0, 64) for at_s in (109.9, 110.0)] == [0, 1]


def test_changes_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A stop with its reason, a restart with how long it took; nothing for each call or probe."""
    caplog.set_level(logging.INFO)
    table = stopped()
    for now_s in (102.0, 105.0, 109.0):
        call(table, failed(), now_s, task_id=int(now_s))
    call(table, GOOD, 113.0)

    assert [record.message for record in caplog.records] == [
        "route default stopped, one call at a time is tried: SERVER: 503: away",
        "route default takes calls again, after 13 s",
    ]


# ---- what an end tells


@pytest.mark.parametrize("row", CLASSES.values(), ids=lambda row: row.name)
def test_a_failure_tells_what_the_table_says(row: ErrorClass) -> None:
    """Whatever becomes of its task."""
    failure = Failure(row.name, "text")
    outcomes = (Retry(failure, Spent(), "30s", 30.0), Snooze(failure, Spent(), 1.0), Dead(failure, Spent()))

    assert {by_outcome(outcome) for outcome in outcomes} == {Told(row.route, f"{row.name}: text", row.name)}


@pytest.mark.parametrize("page", [b"<html>maintenance</html>", b"", b"[]"])
def test_a_page_in_place_of_a_completion_is_an_outage(page: bytes) -> None:
    """Whoever asked: it is no proof that the provider works, and a maintenance would use up the attempts of every task."""
    reply = Reply(200, {}, page)

    assert by_outcome(judge(reply, TERMS)).effect is by_answer(reply).effect is Effect.OUTAGE


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Reply(200, {}, b'{"choices": [{"message": {"content": "OK"}, "finish_reason": "length"}]}'), Effect.UP),
        (Reply(200, {}, b"<html>maintenance</html>"), Effect.OUTAGE),
        (Reply(200, {}, b'{"error": {"message": "away", "code": 503}}'), Effect.OUTAGE),
        (Reply(400, {}, b'{"error": {"message": "max_tokens is not supported"}}'), Effect.UP),
        (Reply(503, {}, b""), Effect.OUTAGE),
        (Reply(429, {}, b""), Effect.REFUSAL),
        (Reply(401, {}, b""), Effect.LOCKED),
        (CallFailed("NETWORK", "refused"), Effect.OUTAGE),
        (CallFailed("AMBIGUOUS", "cut"), Effect.OUTAGE),
    ],
)
def test_the_answer_to_the_prompt_is_judged_as_any_other(answer: Reply | CallFailed, told: Effect) -> None:
    """By status and body; one that was cut short is an answer."""
    assert by_answer(answer).effect is told

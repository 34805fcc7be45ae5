"""What a person is shown comes from the tally and is right after each move."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from sqlalchemy import insert

from docllm.agent.ledger import open_work
from docllm.agent.ledger.counts import compaction
from docllm.agent.ledger.leases import leasing
from docllm.agent.ledger.recovery import reaping
from docllm.agent.ledger.sql_ledger import reply_limit_bytes
from docllm.agent.ports.outcome import Moved, Outcome, Snooze
from docllm.producer.ledger import cancel, outbox, replay_progress
from docllm.producer.ledger.status import agent_status, batch_status, group_status, progress
from docllm.producer.ledger.status.batch_status import BatchStatus
from docllm.producer.ledger.status.group_status import GroupStatus
from docllm.producer.ports import Item
from docllm.schemas.agent_report import AgentReport, Reason, SuspectReport, to_json
from docllm.schemas.codes import Code
from docllm.schemas.ledger import agent_rows, tables
from docllm.schemas.task.states import Status
from docllm.schemas.task.waits import WaitReason
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    REFUSED,
    RELEASED,
    RETRY,
    SNOOZE,
    SPENT,
    SUCCEEDED,
    LedgerDatabase,
)

PAUSED = Reason(Code.ROUTE_PAUSED, "default", "RATE", "429", seconds=20.0)


def reporting(*reasons: Reason, lag: Mapping[str, int] | None = None) -> str:
    """Return the stored report of an agent with these reasons."""
    return to_json(AgentReport(slots=8, running=2, reasons=reasons, lag=lag or {}))


def shown(ledger_db: LedgerDatabase) -> GroupStatus:
    return ledger_db.call(group_status.read_group, GROUP)


def batch(ledger_db: LedgerDatabase) -> BatchStatus:
    (batch_status,) = shown(ledger_db).batches
    return batch_status


def counts(ledger_db: LedgerDatabase) -> dict[str, int]:
    """Return the counts that are not 0."""
    return {name: count for name, count in batch(ledger_db).counts.items() if count}


def test_loaded_tasks_are_pending(ledger_db: LedgerDatabase) -> None:
    """After a load the total and the pending count are the number of loaded tasks."""
    ledger_db.load("a", "b")
    ledger_db.accept([], ledger_db.batch())

    assert counts(ledger_db) == {"total": 2, "pending": 2}


def test_a_claimed_task_is_processing(ledger_db: LedgerDatabase) -> None:
    """A claim moves a task from pending to processing, a release moves it back."""
    first, _ = ledger_db.load("a", "b")
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(first, owner)
    assert counts(ledger_db) == {"total": 2, "pending": 1, "processing": 1}

    ledger_db.settle(row, owner, RELEASED)

    assert counts(ledger_db) == {"total": 2, "pending": 2}


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (SUCCEEDED, "succeeded"),
        (DEAD, "dead"),
        (RETRY, "retrying"),
        (SNOOZE, "pending"),
        (RELEASED, "pending"),
    ],
)
def test_a_settled_task_is_shown_where_it_went(
    ledger_db: LedgerDatabase, outcome: Outcome, name: str
) -> None:
    """Each outcome shows its task once, in its state."""
    (task_id,) = ledger_db.load("a")

    ledger_db.settled(task_id, outcome)

    assert counts(ledger_db) == {"total": 1, name: 1}


def test_no_more_than_a_page_of_tasks_that_are_retried_is_counted(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage sends a million tasks to their tier.

    The tasks due first are shown as retrying, the others as pending.
    """
    monkeypatch.setattr(batch_status, "MAX_COUNTED", 2)
    for task_id in ledger_db.load("a", "b", "c"):
        ledger_db.settled(task_id, RETRY)

    assert counts(ledger_db) == {"total": 3, "pending": 1, "retrying": 2}


def test_nothing_is_counted_for_a_group_without_waiting_tasks(ledger_db: LedgerDatabase) -> None:
    """The tally shows that nothing waits, so no task is read, whatever other groups have."""
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, SUCCEEDED)
    (theirs,) = ledger_db.load("a", into="theirs", group="other")
    owner = ledger_db.agent(group="other").next_owner()
    ledger_db.settle(ledger_db.claimed(theirs, owner), owner, RETRY)
    with ledger_db.statements() as statements:
        assert counts(ledger_db) == {"total": 1, "succeeded": 1}

    assert statements
    assert not [statement for statement in statements if "FROM task" in statement]


def test_a_retried_task_that_succeeds_is_one_success(ledger_db: LedgerDatabase) -> None:
    """Failed attempts cost money and are shown as "tried again".

    But there is one task, and it succeeded.
    """
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, SNOOZE)
    ledger_db.ago(tables.task.c.due_at, 1, task_id)
    ledger_db.settled(task_id, RETRY)
    ledger_db.ago(tables.task.c.due_at, 1, task_id)
    owner = ledger_db.agent().next_owner()
    ledger_db.settle(ledger_db.claimed(task_id, owner, fence=1), owner, SUCCEEDED)

    counted = batch(ledger_db)

    assert counts(ledger_db) == {"total": 1, "succeeded": 1}
    assert counted.failures == {"tried again SERVER": 2}
    assert (counted.tokens_in, counted.tokens_out) == (30, 15)
    assert counted.cost == pytest.approx(0.0009)


def test_failures_are_counted_by_class(ledger_db: LedgerDatabase) -> None:
    """Dead tasks are counted by the class of their error."""
    for task_id in ledger_db.load("a", "b"):
        ledger_db.settled(task_id, DEAD)

    assert batch(ledger_db).failures == {"dead BAD_REQUEST": 2}


def test_cancelled_tasks_are_counted(ledger_db: LedgerDatabase) -> None:
    """After a cancel the waiting tasks are cancelled, and the batch is shown as cancelled."""
    first, _, _ = ledger_db.load("a", "b", "c")
    ledger_db.settled(first, SUCCEEDED)
    batch_id = ledger_db.batch().id
    ledger_db.cancel()
    ledger_db.call(cancel.cancel_page, batch_id)

    assert counts(ledger_db) == {"total": 3, "succeeded": 1, "cancelled": 2}
    assert batch(ledger_db).cancelled


def test_reaped_tasks_are_pending_or_dead(ledger_db: LedgerDatabase) -> None:
    """A lost agent's tasks are shown as pending again, or as dead because of it."""
    first, second = ledger_db.load("a", "b")
    ledger_db.set(tables.task, second, lease_losses=2)
    for task_id in (first, second):
        lease = ledger_db.agent()
        ledger_db.claimed(task_id, lease.next_owner())
        assert ledger_db.call(leasing.declare_lost, lease.agent_id)
    ledger_db.call(reaping.reset_orphans, GROUP, [first, second])

    assert counts(ledger_db) == {"total": 2, "pending": 1, "dead": 1}
    assert batch(ledger_db).failures == {"dead WORKER_LOST": 1}


def test_a_rate_gives_an_end(ledger_db: LedgerDatabase) -> None:
    """The tasks that ended in the last minute give a rate, and the rate an estimate.

    Without a rate there is no estimate.
    """
    first, _ = ledger_db.load("a", "b")
    assert (batch(ledger_db).rate_per_s, batch(ledger_db).eta_s) == (0.0, None)
    ledger_db.settled(first, SUCCEEDED)
    ledger_db.ago(tables.tally.c.created_at, 10)

    counted = batch(ledger_db)

    assert counted.rate_per_s == pytest.approx(0.1, rel=0.5)
    assert counted.eta_s == pytest.approx(1 / counted.rate_per_s, rel=0.1)


def test_a_retry_is_part_of_the_time_left(ledger_db: LedgerDatabase) -> None:
    """Where only retries are left, the last that is due is the end, whatever the rate.

    The last possible attempt comes after all tiers in between.
    """
    first, second = ledger_db.load("a", "b")
    ledger_db.settled(first, SUCCEEDED)
    ledger_db.settled(second, replace(RETRY, delay_s=600.0))
    ledger_db.set(tables.task, second, max_attempts=4)

    group = ledger_db.call(group_status.read_group, GROUP, tiers_of=lambda _: ("30s", "5m", "1h"))

    (counted,) = group.batches
    assert counted.eta_s == pytest.approx(600.0, abs=30.0)
    assert counted.retries is not None
    assert (counted.retries.tasks, counted.retries.number) == (1, 2)
    last_s = (counted.retries.last_at - counted.retries.first_at).total_seconds()
    assert last_s == 300 + 3600
    assert counted.retries.text.startswith("1 waits for its second try at ")


@pytest.mark.parametrize(
    "outcome", [Moved(REFUSED, SPENT, 600.0, WaitReason.TIME), Snooze(REFUSED, SPENT, 600.0)]
)
def test_a_wait_for_a_time_is_part_of_the_time_left(
    ledger_db: LedgerDatabase, outcome: Moved | Snooze
) -> None:
    """A `not_before`, a handler that comes back, a provider that says `Retry-After`.

    The rate would promise an end in seconds.
    """
    first, second, _ = ledger_db.load("a", "b", "c")
    ledger_db.settled(first, SUCCEEDED)
    ledger_db.settled(second, outcome)

    totals = ledger_db.call(progress.read_totals, GROUP)

    assert batch(ledger_db).eta_s == pytest.approx(600.0, abs=30.0)
    assert totals.later == 1
    assert totals.later_left_s == pytest.approx(600.0, abs=30.0)


def test_a_task_that_waits_for_something_else_has_no_time(ledger_db: LedgerDatabase) -> None:
    """Nobody knows when a route takes calls again, so `left` does not count its tasks."""
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, Moved(REFUSED, SPENT, 600.0, WaitReason.ROUTE, "default"))

    assert (batch(ledger_db).retries, batch(ledger_db).eta_s) == (None, None)


def test_what_ended_is_counted_by_minute(ledger_db: LedgerDatabase) -> None:
    """The last number is the minute until now; what ended earlier than ten minutes ago is gone.

    Attempts that ended no task, and replays, do not count. The rate is that of the last minute.
    """
    ids = ledger_db.load(*"abcdefg")
    assert batch(ledger_db).per_minute == ()
    other, still = ledger_db.load("a", into="other")[0], ledger_db.load("a", into="still")[0]
    ends: list[tuple[int, Outcome, int]] = [
        (ids[0], SUCCEEDED, 20),
        (ids[1], DEAD, 30),
        (ids[2], SUCCEEDED, 90),
    ]
    ends += [(ids[3], SUCCEEDED, 570), (ids[4], SUCCEEDED, 630), (ids[5], RETRY, 90)]
    ends += [(other, SUCCEEDED, 150), (still, RETRY, 5)]
    for task_id, outcome, ended_s in ends:
        before = {row.id for row in ledger_db.rows(tables.tally)}
        ledger_db.settled(task_id, outcome)
        for row in ledger_db.rows(tables.tally):
            if row.id not in before:
                ledger_db.ago(tables.tally.c.created_at, ended_s, row.id)

    found = {one.name: one for one in shown(ledger_db).batches}

    assert found[BATCH].per_minute == (1, 0, 0, 0, 0, 0, 0, 0, 1, 2)
    assert found["other"].per_minute == (0, 0, 0, 0, 0, 0, 0, 1, 0, 0)
    assert found["still"].per_minute == ()
    assert found[BATCH].rate_per_s == pytest.approx(2 / 30, abs=0.02)
    assert found["other"].rate_per_s == 0.0


def test_failed_attempts_are_shown_while_they_matter(ledger_db: LedgerDatabase) -> None:
    """Failures of the last ten minutes are shown, until the batch is done."""
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, SNOOZE)
    assert batch(ledger_db).failed_lately == {SNOOZE.failure.error_class: 1}

    for row in ledger_db.rows(tables.tally):
        ledger_db.ago(tables.tally.c.created_at, 660, row.id)
    assert batch(ledger_db).failed_lately == {}

    ledger_db.ago(tables.task.c.due_at, 1, task_id)
    ledger_db.settled(task_id, RETRY)
    assert batch(ledger_db).failed_lately == {RETRY.failure.error_class: 1}

    ledger_db.ago(tables.task.c.due_at, 1, task_id)
    owner = ledger_db.agent().next_owner()
    ledger_db.settle(ledger_db.claimed(task_id, owner, fence=1), owner, SUCCEEDED)
    assert batch(ledger_db).failed_lately == {}


def test_a_group_sees_its_own_batches(ledger_db: LedgerDatabase) -> None:
    """Another group's batches, agents and orders are not shown.

    One batch can be requested alone.
    """
    ledger_db.load("a", into="one")
    ledger_db.load("a", into="two")
    ledger_db.load("a", into="three", group="other")
    ledger_db.agent("theirs", group="other")
    ledger_db.call(outbox.place, "other", "tasks", [Item(outbox.TASK, 1, 0)])

    report = shown(ledger_db)

    assert [batch.name for batch in report.batches] == ["one", "two"]
    assert (report.agents, report.orders) == ((), 0)
    assert [
        batch.name for batch in ledger_db.call(group_status.read_group, GROUP, "two").batches
    ] == ["two"]


def test_an_unknown_type_is_a_reason_while_a_task_may_have_it(ledger_db: LedgerDatabase) -> None:
    """The agents learn late that no task of the type waits any more."""
    (task_id,) = ledger_db.load("a")
    unknown = Reason(Code.TYPE_UNKNOWN, "invoice")
    agent = ledger_db.agent("alive")
    ledger_db.call(leasing.beat, agent.agent_id, reporting(unknown))
    assert any("tasks of type invoice wait" in reason for reason in shown(ledger_db).reasons)

    ledger_db.settled(task_id, SUCCEEDED)

    assert shown(ledger_db).reasons == ()


def test_a_type_that_one_agent_knows_is_no_reason(ledger_db: LedgerDatabase) -> None:
    """Tasks of the type come to that agent, though another one has just met them."""
    ledger_db.load("a")
    unknown = Reason(Code.TYPE_UNKNOWN, "invoice")
    older, newer = ledger_db.agent("older"), ledger_db.agent("newer")
    knowing = to_json(AgentReport(slots=8, types=("invoice",)))
    ledger_db.call(leasing.beat, older.agent_id, reporting(unknown))
    ledger_db.call(leasing.beat, newer.agent_id, knowing)

    assert shown(ledger_db).reasons == ()
    ledger_db.call(leasing.stop, newer.agent_id)
    assert any("tasks of type invoice wait" in reason for reason in shown(ledger_db).reasons)


def test_status_says_why_nothing_runs(ledger_db: LedgerDatabase) -> None:
    """No agent, a silent agent, and what a living agent waits for; not an agent that lost nothing.

    There are no reasons when all is done.
    """
    (task_id,) = ledger_db.load("a")
    assert any("no agent alive" in reason for reason in shown(ledger_db).reasons)
    alive, lost, silent, stopped = (
        ledger_db.agent(name) for name in ("alive", "lost", "silent", "stopped")
    )
    ledger_db.call(leasing.beat, alive.agent_id, reporting(PAUSED))
    ledger_db.call(leasing.declare_lost, lost.agent_id)
    ledger_db.call(leasing.stop, stopped.agent_id)
    ledger_db.ago(tables.agent.c.seen_at, 9, silent.agent_id)

    report = shown(ledger_db)

    assert {agent.name: agent.state for agent in report.agents} == {
        "alive": "alive",
        "lost": "lost",
        "silent": "silent",
        "stopped": "stopped",
    }
    assert "route default waits 20 s: RATE: 429" in report.reasons
    assert any(reason.startswith("agent silent silent, ") for reason in report.reasons)
    assert not any(reason.startswith("agent lost lost") for reason in report.reasons)
    assert not any("no agent alive" in reason for reason in report.reasons)
    ledger_db.settled(task_id, SUCCEEDED)
    ledger_db.call(leasing.beat, alive.agent_id, "")
    assert shown(ledger_db).reasons == ()


@pytest.mark.parametrize("seen_s", [13.0, 300.0])
def test_a_lost_agent_is_a_reason_while_it_holds_tasks(
    ledger_db: LedgerDatabase, seen_s: float
) -> None:
    """A bug once named it for ten minutes after its tasks ran again, and alerts went on as long.

    The agent itself stays in the list of agents.
    """
    first, _ = ledger_db.load("a", "b")
    ledger_db.agent("alive")
    lost = ledger_db.agent("lost")
    ledger_db.claimed(first, lost.next_owner())
    ledger_db.call(leasing.declare_lost, lost.agent_id)
    ledger_db.ago(tables.agent.c.seen_at, seen_s, lost.agent_id)
    found = shown(ledger_db)
    assert found.reasons == (f"agent lost lost, {seen_s:.0f} s; its tasks are not reset yet",)
    holds = {agent["name"]: agent["holds_tasks"] for agent in found.as_json()["agents"]}
    assert holds == {"alive": None, "lost": True}

    ledger_db.call(reaping.reset_orphans, GROUP, [first])

    found = shown(ledger_db)
    assert found.reasons == ()
    holds = {agent.name: (agent.state, agent.holds_tasks) for agent in found.agents}
    assert holds == {"alive": ("alive", None), "lost": ("lost", False)}


def test_the_worst_reason_of_group_agents_and_batches_comes_first(
    ledger_db: LedgerDatabase,
) -> None:
    """What stops most and needs a person is read first, wherever it was found."""
    first, _ = ledger_db.load("a", "b")
    batch_id = ledger_db.batch().id
    lost, silent, waiting, parked = (
        ledger_db.agent(name) for name in ("gone", "quiet", "first", "second")
    )
    ledger_db.claimed(first, lost.next_owner())
    ledger_db.call(leasing.declare_lost, lost.agent_id)
    ledger_db.ago(tables.agent.c.seen_at, 9, silent.agent_id)
    unknown = Reason(Code.TOPIC_UNKNOWN, "docllm.inbox")
    money = Reason(Code.ROUTE_PARKED, "b", "MONEY", "402", seconds=9.0)
    suspect = SuspectReport(9, BATCH, "k", 3, alone=True)
    for lease, report in (
        (waiting, AgentReport(reasons=(PAUSED, unknown), loop_age_s=20.0)),
        (parked, AgentReport(reasons=(money,), suspects=(suspect,))),
    ):
        ledger_db.call(leasing.beat, lease.agent_id, to_json(report))
    ledger_db.run(
        lambda c: c.execute(
            insert(tables.guard).values(
                group_name=GROUP, batch_id=batch_id, type="t", route="default", reason="10 of 10"
            )
        )
    )

    found = shown(ledger_db)

    assert [wait.urgency.name for wait in found.waits] == [
        "ROUTE_PARKED",
        "TOPIC_UNKNOWN",
        "GUARD_RAISED",
        "LOOP_BLOCKED",
        "AGENT_LOST",
        "SUSPECT_RUNS",
        "AGENT_SILENT",
        "ROUTE_PAUSED",
    ]
    assert found.as_json()["reasons"] == [wait.text for wait in found.waits]
    assert found.as_json()["waits"][0] == {"code": "route_parked", "text": found.waits[0].text}
    for lease in (waiting, parked):
        ledger_db.call(leasing.stop, lease.agent_id)
    assert [wait.urgency.name for wait in shown(ledger_db).waits] == [
        "NO_AGENT",
        "GUARD_RAISED",
        "AGENT_LOST",
        "AGENT_SILENT",
    ]


def test_an_agent_counts_as_running_until_it_is_silent_stops_or_is_lost(
    ledger_db: LedgerDatabase,
) -> None:
    """A person whose group has no such agent applies a replay; `check` names such other groups."""
    ends: dict[str, Callable[[int], object]] = {
        "running": lambda _: None,
        "silent": lambda agent_id: ledger_db.ago(
            tables.agent.c.seen_at, agent_rows.SILENT_S + 60, agent_id
        ),
        "stopped": lambda agent_id: ledger_db.call(leasing.stop, agent_id),
        "lost": lambda agent_id: ledger_db.call(leasing.declare_lost, agent_id),
    }
    ledger_db.agent()
    for group, end in ends.items():
        end(ledger_db.agent(group, group).agent_id)

    assert ledger_db.call(agent_status.other_groups, GROUP) == ["running"]
    applying = [group for group in ends if ledger_db.call(replay_progress.any_agent, group)]
    assert applying == ["running"]


def test_a_repair_agent_is_no_agent_that_takes_tasks(ledger_db: LedgerDatabase) -> None:
    """A repair agent is listed among the agents as `(reaper)`.

    The tasks wait all the same, and the reason is shown.
    """
    ledger_db.load("a")
    ledger_db.agent(f"host:7{agent_status.REAPER}")

    report = shown(ledger_db)

    assert [(agent.name, agent.state) for agent in report.agents] == [("host:7 (reaper)", "alive")]
    assert [reason for reason in report.reasons if "no agent alive" in reason]
    ledger_db.agent("host:8")
    assert shown(ledger_db).reasons == ()


def test_paused_topics_are_shown_without_an_open_batch(
    ledger_db: LedgerDatabase,
) -> None:
    """The lines of a paused inbox are in no batch.

    Nothing else would say why none of them becomes a task.
    """
    alive = ledger_db.agent()
    unknown = reporting(Reason(Code.TOPIC_UNKNOWN, "docllm.inbox"))
    ledger_db.call(leasing.beat, alive.agent_id, unknown)

    assert shown(ledger_db).reasons == (
        ("topic docllm.inbox paused: it is missing or was created again, run: docllm topics apply"),
    )


def test_the_reports_of_agents_are_shown(ledger_db: LedgerDatabase) -> None:
    """The worst reason comes first, and what several agents report of a route comes once."""
    ledger_db.load("a")
    first, second, silent = (ledger_db.agent(name) for name in ("first", "second", "silent"))
    ledger_db.ago(tables.agent.c.started_at, 9, first.agent_id)
    parked = Reason(Code.ROUTE_PARKED, "b", "MONEY", "402", seconds=9.0)
    for lease, report in (
        (first, reporting(PAUSED, lag={"tasks": 3, "inbox": 1})),
        (second, reporting(replace(PAUSED, seconds=3.0), parked, lag={"tasks": 4})),
        (silent, reporting(Reason(Code.TOPIC_UNKNOWN, "t"), lag={"tasks": 100})),
    ):
        ledger_db.call(leasing.beat, lease.agent_id, report)
    ledger_db.ago(tables.agent.c.seen_at, 9, silent.agent_id)

    found = shown(ledger_db)

    assert [reason.partition(",")[0] for reason in found.reasons] == [
        "route b is parked",
        "agent silent silent",
        "route default waits 20 s: RATE: 429",
    ]
    by_name = {agent["name"]: agent for agent in found.as_json()["agents"]}
    assert (by_name["first"]["slots"], by_name["first"]["running"]) == (8, 2)
    assert by_name["first"]["report"]["lag"] == {"tasks": 3, "inbox": 1}
    assert by_name["second"]["notice"].startswith("route b is parked, ")
    assert agent_status.unread(found.agents) == 1


def test_a_blocked_event_loop_is_a_reason(ledger_db: LedgerDatabase) -> None:
    """The heartbeat goes on in a thread of its own, but nothing else does."""
    ledger_db.load("a")
    for name, age_s in (("busy", 4.9), ("stuck", 12.0)):
        report = to_json(AgentReport(slots=8, loop_age_s=age_s))
        ledger_db.call(leasing.beat, ledger_db.agent(name).agent_id, report)

    assert shown(ledger_db).reasons == ("the event loop of stuck has been blocked for 12 s",)


@pytest.mark.parametrize("report", ["{", "[]", '"text"', '{"slots": "many"}', "[" * 9000])
def test_a_damaged_report_hides_no_agent(ledger_db: LedgerDatabase, report: str) -> None:
    """Whatever is stored as a report, the agent is alive."""
    ledger_db.load("a")
    ledger_db.call(leasing.beat, ledger_db.agent().agent_id, report)

    found = shown(ledger_db)

    assert [(agent.state, agent.notice) for agent in found.agents] == [("alive", "")]
    assert found.reasons == ()


def test_the_types_of_a_groups_agents_are_known_for_a_day(ledger_db: LedgerDatabase) -> None:
    """Types of a stopped agent count; those of another group, or of a damaged report, do not."""
    for name, group, hours in (("a", GROUP, 0), ("b", GROUP, 23), ("c", GROUP, 25), ("d", "g2", 0)):
        agent_id = ledger_db.agent(name, group).agent_id
        ledger_db.call(leasing.beat, agent_id, to_json(AgentReport(types=("document", name))))
        ledger_db.call(leasing.stop, agent_id)
        ledger_db.ago(tables.agent.c.seen_at, 3600 * hours, agent_id)
    ledger_db.call(leasing.beat, ledger_db.agent("old").agent_id, "{")

    assert ledger_db.call(agent_status.read_types, GROUP) == {"document", "a", "b"}


def test_the_last_report_of_an_agent_that_stopped_is_not_shown(ledger_db: LedgerDatabase) -> None:
    """The last report says nothing about now."""
    ledger_db.load("a")
    agent_id = ledger_db.agent().agent_id
    ledger_db.call(leasing.beat, agent_id, reporting(PAUSED))
    ledger_db.call(leasing.stop, agent_id)

    (agent,) = shown(ledger_db).agents

    assert (agent.state, agent.report, agent.notice) == ("stopped", None, "")


def test_the_json_form_is_whole(ledger_db: LedgerDatabase) -> None:
    """Version, group, ledger, agents and batches, with plain numbers only."""
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, SUCCEEDED)

    report = shown(ledger_db).as_json()

    assert (report["version"], report["group"], report["ledger"]) == (1, GROUP, ledger_db.ledger_id)
    (only,) = report["batches"]
    assert {
        "name",
        "counts",
        "rate_per_s",
        "eta_s",
        "tokens_in",
        "tokens_out",
        "cost",
    } <= only.keys()
    assert only["name"] == BATCH
    assert all(type(count) is int for count in only["counts"].values())
    assert type(only["cost"]) is float


def test_open_tasks_end_with_the_last_one(ledger_db: LedgerDatabase) -> None:
    """A group has open tasks while a task waits, runs or is to be retried.

    After its first batch a group has a batch forever.
    """
    assert not ledger_db.call(open_work.any_batch, GROUP)
    for outcome in (SUCCEEDED, DEAD):
        (task_id,) = ledger_db.load(type(outcome).__name__)
        assert ledger_db.call(open_work.any_open_task, GROUP)
        ledger_db.settled(task_id, outcome)
        assert not ledger_db.call(open_work.any_open_task, GROUP)
    ledger_db.load("theirs", into="elsewhere", group="other")

    assert not ledger_db.call(open_work.any_open_task, GROUP)
    assert ledger_db.call(open_work.any_batch, GROUP)


@pytest.mark.parametrize("state", [Status.PENDING, Status.PROCESSING, Status.RETRYING])
def test_every_state_that_is_not_final_is_open(ledger_db: LedgerDatabase, state: Status) -> None:
    """A task in this state keeps `--until-done` waiting."""
    (task_id,) = ledger_db.load("a")
    ledger_db.set(tables.task, task_id, status=int(state))

    assert ledger_db.call(open_work.any_open_task, GROUP)


def test_the_limit_of_a_reply_fits_the_server(ledger_db: LedgerDatabase) -> None:
    """The limit is a quarter of the largest packet, and 16 MiB at most."""
    assert ledger_db.run(reply_limit_bytes) == 16 << 20


def test_the_number_of_batches_adds_no_statement(ledger_db: LedgerDatabase) -> None:
    """A group of thousands of batches is read in as many statements as one of one batch."""
    ledger_db.load("a")
    with ledger_db.statements() as few:
        shown(ledger_db)
    for number in range(4):
        ledger_db.load("a", "b", into=f"batch {number}")
    with ledger_db.statements() as many:
        shown(ledger_db)

    assert len(many) == len(few)
    assert sum("tally" in statement for statement in many) == 2
    assert [one.counts["total"] for one in shown(ledger_db).batches] == [1, 2, 2, 2, 2]


def test_counts_are_the_same_after_compaction(ledger_db: LedgerDatabase) -> None:
    """A screen does not show which counts are rolled up."""
    outcomes: list[Outcome] = [SUCCEEDED, DEAD, RETRY]
    for task_id, outcome in zip(ledger_db.load("a", "b", "c"), outcomes, strict=True):
        ledger_db.settled(task_id, outcome)
    ledger_db.ago(tables.tally.c.created_at, 1000)
    before = batch(ledger_db)

    assert ledger_db.call(compaction.compact, compaction.CompactionLimits()) == 4

    assert replace(batch(ledger_db), eta_s=before.eta_s) == before  # time passes
    assert before.counts["total"] == 3

"""Hooks are ordered by the end of an attempt, and each runs at least once."""

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, select, update

from docllm.agent.ledger import hook_runs
from docllm.agent.ledger.hook_runs import HookEnd, HookReturn, HookRun
from docllm.agent.ledger.leases.leasing import declare_lost, stop
from docllm.agent.ledger.recovery import reaping
from docllm.agent.ledger.settlements.settling import settle
from docllm.agent.ports import Verdict
from docllm.agent.ports.outcome import Moved, Outcome, Spent
from docllm.producer.ledger import batch_options, cancel, hook_orders
from docllm.producer.ledger.status import group_status
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.task.hooks import HookEvent, HookState
from docllm.schemas.task.waits import WaitReason
from tests.support.ledger_database import (
    DEAD,
    GROUP,
    LONGEST,
    REFUSED,
    RELEASED,
    RETRY,
    SNOOZE,
    SPENT,
    SUCCEEDED,
    LedgerDatabase,
    settlement,
)

TYPE = "document"
ALL = {TYPE: frozenset(HookEvent)}
KINDS = [(TYPE, event) for event in HookEvent]
PAID = Spent(
    model="model", tokens_in=7, tokens_out=3, cost_micro=250, call_id="call", duration_ms=900
)


def end(ledger_db: LedgerDatabase, key: str, outcome: Outcome) -> tuple[int, Verdict]:
    """Let a task end so, under settings that name all hooks of its type."""
    (task_id,) = ledger_db.load(key)
    owner = ledger_db.agent().next_owner()
    given = [settlement(ledger_db.claimed(task_id, owner), owner, outcome)]
    verdicts, _ = ledger_db.call(
        settle, group=GROUP, settlements=given, now_utc_s=0.0, longest_tier=LONGEST, hooked=ALL
    )
    return task_id, verdicts[0]


def take(ledger_db: LedgerDatabase, agent_id: int) -> list[HookRun]:
    ids = ledger_db.call(hook_runs.due_ids, GROUP, KINDS, 10)
    return ledger_db.call(hook_runs.lease_due, ids, agent_id, 600.0)


def failed(ledger_db: LedgerDatabase, run: HookRun, agent_id: int) -> int:
    ends = [HookEnd(run, HookReturn(failure="the queue is full"))]
    return ledger_db.call(hook_runs.finish, agent_id, ends)


@pytest.mark.parametrize(
    ("outcome", "event", "status", "error_class", "attempts"),
    [
        (SUCCEEDED, HookEvent.SUCCESS, "succeeded", "", 1),
        (RETRY, HookEvent.RETRY, "retrying", "SERVER", 1),
        (DEAD, HookEvent.DEAD, "dead", "BAD_REQUEST", 1),
    ],
)
def test_the_end_of_an_attempt_orders_its_hook(
    ledger_db: LedgerDatabase,
    outcome: Outcome,
    event: HookEvent,
    status: str,
    error_class: str,
    attempts: int,
) -> None:
    """The order says how the attempt ended, and is due at once."""
    task_id, _ = end(ledger_db, "a", outcome)

    (run,) = take(ledger_db, 1)

    assert (run.task_id, run.event, run.status, run.error_class, run.attempts) == (
        task_id,
        event,
        status,
        error_class,
        attempts,
    )


@pytest.mark.parametrize("outcome", [SNOOZE, RELEASED, Moved(REFUSED, SPENT, 9.0, WaitReason.TIME)])
def test_an_end_that_does_not_count_orders_nothing(
    ledger_db: LedgerDatabase, outcome: Outcome
) -> None:
    """A task that only waits has neither failed nor ended."""
    end(ledger_db, "a", outcome)

    assert ledger_db.count(tables.hook) == 0


def test_a_superseded_settle_orders_nothing(ledger_db: LedgerDatabase) -> None:
    """The hook is ordered by the settle that is accepted, once; an echo of it orders none."""
    (task_id,) = ledger_db.load("a")
    owner, other = ledger_db.agent().next_owner(), ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner)
    for by in (other, owner, owner):
        given = [settlement(row, by, SUCCEEDED)]
        ledger_db.call(settle, GROUP, given, 0.0, LONGEST, hooked=ALL)

    assert ledger_db.count(tables.hook) == 1


def test_a_running_task_that_is_cancelled_orders_the_hook_of_its_end(
    ledger_db: LedgerDatabase,
) -> None:
    """The task's batch was cancelled, so it does not come back."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner)
    ledger_db.cancel()
    given = [settlement(row, owner, RETRY)]
    ledger_db.call(
        settle, group=GROUP, settlements=given, now_utc_s=0.0, longest_tier=LONGEST, hooked=ALL
    )

    (ordered,) = ledger_db.rows(tables.hook)
    assert (ordered.event, ordered.status, ordered.attempts) == ("dead", "cancelled", 0)


def test_a_cancel_orders_hooks_of_types_that_agents_have_named(ledger_db: LedgerDatabase) -> None:
    """A person's program need not have the settings of the agents."""
    ledger_db.load("a", "b")
    ledger_db.call(hook_orders.store_names, GROUP, [(TYPE, HookEvent.DEAD)])
    ledger_db.call(hook_orders.store_names, "other", [("invoice", HookEvent.DEAD)])
    ledger_db.cancel()

    ledger_db.call(cancel.cancel_page, ledger_db.batch().id)

    rows = ledger_db.rows(tables.hook)
    assert [(row.group_name, row.type, row.status) for row in rows] == [
        (GROUP, TYPE, "cancelled")
    ] * 2


def test_what_an_agent_named_a_day_ago_holds_no_more(ledger_db: LedgerDatabase) -> None:
    """Settings that no agent has any more order nothing."""
    ledger_db.load("a")
    ledger_db.call(hook_orders.store_names, GROUP, KINDS)
    a_day_ago = update(tables.hook_type).values(seen_at=utc_after(-86_401))
    ledger_db.run(lambda c: c.execute(a_day_ago))
    ledger_db.cancel()

    ledger_db.call(cancel.cancel_page, ledger_db.batch().id)

    assert ledger_db.count(tables.hook) == 0


def test_a_task_that_dies_of_its_losses_orders_its_hook(ledger_db: LedgerDatabase) -> None:
    """No settle tells of it, since its agents are gone."""
    ledger_db.call(hook_orders.store_names, GROUP, KINDS)
    (task_id,) = ledger_db.load("a")
    ledger_db.set(tables.task, task_id, lease_losses=5)
    lease = ledger_db.agent()
    ledger_db.claimed(task_id, lease.next_owner())
    ledger_db.ago(tables.task.c.due_at, 1, task_id)

    ledger_db.call(reaping.reset_overdue, GROUP, [task_id])

    (row,) = ledger_db.rows(tables.hook)
    assert (row.event, row.status, row.error_class) == ("dead", "dead", "WORKER_LOST")


def test_a_hook_is_leased_by_one_agent(ledger_db: LedgerDatabase) -> None:
    """While one runs it, no other finds it; a hook that is done is gone."""
    end(ledger_db, "a", SUCCEEDED)
    (run,) = take(ledger_db, 1)

    assert take(ledger_db, 2) == []
    assert ledger_db.call(hook_runs.any_running, GROUP)
    ledger_db.call(hook_runs.finish, 1, [HookEnd(run, HookReturn())])
    assert ledger_db.count(tables.hook) == 0
    assert not ledger_db.call(hook_runs.any_running, GROUP)


def test_a_hook_of_another_type_is_left_to_agents_that_know_it(ledger_db: LedgerDatabase) -> None:
    """An agent takes only what its own settings name."""
    end(ledger_db, "a", SUCCEEDED)

    assert ledger_db.call(hook_runs.due_ids, GROUP, [(TYPE, HookEvent.DEAD)], 10) == []
    assert ledger_db.call(hook_runs.due_ids, GROUP, [("invoice", HookEvent.SUCCESS)], 10) == []
    assert ledger_db.call(hook_runs.due_ids, "other", KINDS, 10) == []
    assert ledger_db.call(hook_runs.due_ids, GROUP, [], 10) == []


def test_the_hook_that_is_due_longest_goes_first_whatever_its_kind(
    ledger_db: LedgerDatabase,
) -> None:
    """A kind whose hooks pile up keeps no other kind waiting behind all of them."""
    for key, outcome in (("a", DEAD), ("b", DEAD), ("c", SUCCEEDED), ("d", DEAD)):
        end(ledger_db, key, outcome)
    hooks = [row.id for row in ledger_db.rows(tables.hook)]
    for due_s, hook_id in enumerate(reversed(hooks), start=10):
        ledger_db.ago(tables.hook.c.due_at, due_s, hook_id)

    assert ledger_db.call(hook_runs.due_ids, GROUP, KINDS, 3) == hooks[:3]


def test_a_hook_that_fails_five_times_is_given_up(ledger_db: LedgerDatabase) -> None:
    """Each failure but the last is followed by a longer wait."""
    end(ledger_db, "a", SUCCEEDED)
    given_up = []
    for _ in range(5):
        ledger_db.ago(tables.hook.c.due_at, 1)
        (run,) = take(ledger_db, 1)
        given_up.append(failed(ledger_db, run, 1))
        assert take(ledger_db, 1) == []  # it waits

    (row,) = ledger_db.rows(tables.hook)
    ledger_db.ago(tables.hook.c.due_at, 1)
    assert given_up == [0, 0, 0, 0, 1]
    text = (
        "1 hook on_success of type document given up: the queue is full; "
        f"to run them again: docllm dead hooks --retry --group {GROUP}"
    )
    assert ledger_db.call(group_status.read_group, GROUP).reasons == (text,)
    assert ledger_db.call(hook_orders.of_task, row.task_id) == [
        "on_success given up, failed 5 times: the queue is full"
    ]
    assert (row.state, row.tries, row.failure) == (HookState.GAVE_UP, 5, "the queue is full")
    assert take(ledger_db, 1) == []


def give_up(ledger_db: LedgerDatabase, **keys: Outcome) -> None:
    """Let the hook of each of these ends fail too often."""
    for key, outcome in keys.items():
        end(ledger_db, key, outcome)
    ledger_db.run(
        lambda c: c.execute(
            update(tables.hook).values(
                state=HookState.GAVE_UP, tries=5, losses=2, failure="the queue is full"
            )
        )
    )


def test_hooks_that_were_given_up_are_ordered_again(ledger_db: LedgerDatabase) -> None:
    """The hooks have all their tries again, other kinds stay, and an audit row names who."""
    give_up(ledger_db, a=SUCCEEDED, b=SUCCEEDED, c=DEAD)
    given_up = ledger_db.call(hook_orders.given_up_kinds, GROUP, None, None)
    assert [(kind.event, kind.count, kind.failure) for kind in given_up] == [
        (HookEvent.DEAD, 1, "the queue is full"),
        (HookEvent.SUCCESS, 2, "the queue is full"),
    ]
    assert ledger_db.call(hook_orders.given_up_kinds, "other", None, None) == []
    assert ledger_db.call(hook_orders.given_up_kinds, GROUP, "invoice", None) == []

    (kind,) = ledger_db.call(hook_orders.given_up_kinds, GROUP, TYPE, HookEvent.SUCCESS)
    ids = ledger_db.call(hook_orders.given_up_ids, GROUP, kind)
    assert [ledger_db.call(hook_orders.retry, GROUP, kind, ids, "me@host") for _ in range(2)] == [
        2,
        0,
    ]

    ledger_db.ago(tables.hook.c.due_at, 1)
    runs = take(ledger_db, 1)
    assert [(run.event, run.tries, run.losses) for run in runs] == [("success", 0, 0)] * 2
    (left,) = ledger_db.call(hook_orders.given_up_kinds, GROUP, None, None)
    assert (left.event, left.count) == (HookEvent.DEAD, 1)
    audits = [(row.actor, row.kind, row.items) for row in ledger_db.rows(tables.audit)]
    assert audits[0] == ("me@host", "hook", 2)


def test_a_released_hook_has_not_failed(ledger_db: LedgerDatabase) -> None:
    """The hook is due again after its delay."""
    end(ledger_db, "a", SUCCEEDED)
    (run,) = take(ledger_db, 1)

    ledger_db.call(hook_runs.finish, 1, [HookEnd(run, HookReturn(released=True), delay_s=-1.0)])

    (again,) = take(ledger_db, 2)
    assert (again.tries, again.losses) == (0, 0)


@pytest.mark.parametrize("ending", [declare_lost, stop])
def test_the_hook_of_an_agent_that_is_gone_runs_elsewhere(
    ledger_db: LedgerDatabase, ending: Callable[[Connection, int], object]
) -> None:
    """What the former agent writes later has no effect, and the loss is counted."""
    former, other = ledger_db.agent().agent_id, ledger_db.agent().agent_id
    end(ledger_db, "a", SUCCEEDED)
    (run,) = take(ledger_db, former)
    assert ledger_db.call(hook_runs.end_lost_leases, GROUP) == 0
    ledger_db.call(ending, former)

    assert ledger_db.call(hook_runs.end_lost_leases, GROUP) == 1
    (again,) = take(ledger_db, other)
    ledger_db.call(hook_runs.finish, former, [HookEnd(run, HookReturn(PAID))])

    assert again.losses == 1
    assert ledger_db.count(tables.hook) == 1
    assert ledger_db.count(tables.task_attempt) == 0


def test_a_hook_whose_time_is_over_runs_again(ledger_db: LedgerDatabase) -> None:
    """An agent that lives but never ends it keeps it no longer than the lease."""
    end(ledger_db, "a", SUCCEEDED)
    take(ledger_db, ledger_db.agent().agent_id)
    ledger_db.ago(tables.hook.c.due_at, 1)

    assert ledger_db.call(hook_runs.end_lost_leases, GROUP) == 1
    assert len(take(ledger_db, 2)) == 1


def test_a_hook_that_kills_its_agents_is_given_up(ledger_db: LedgerDatabase) -> None:
    """Such a hook would end the whole group otherwise, one agent after the other."""
    end(ledger_db, "a", SUCCEEDED)
    for _ in range(5):
        (run,) = take(ledger_db, ledger_db.agent().agent_id)
        ledger_db.ago(tables.hook.c.due_at, 1)
        ledger_db.call(hook_runs.end_lost_leases, GROUP)

    (row,) = ledger_db.rows(tables.hook)
    assert (run.losses, row.losses, row.state) == (4, 5, HookState.GAVE_UP)
    assert row.failure == "5 agents were lost while they ran it"


def test_a_hook_gets_its_task_and_its_result(ledger_db: LedgerDatabase) -> None:
    """The result is that of an export; after a failure there is none."""
    end(ledger_db, "a", SUCCEEDED)
    end(ledger_db, "b", DEAD)

    inputs = [ledger_db.call(hook_runs.read_input, run) for run in take(ledger_db, 1)]

    assert [(given and given.value, given and given.result) for given in inputs] == [
        (b"value of a", "answer"),
        (b"value of b", None),
    ]


def test_a_hook_knows_the_routes_of_its_batch(ledger_db: LedgerDatabase) -> None:
    """Its calls stay within them, as those of its task did."""
    end(ledger_db, "a", SUCCEEDED)
    (batch,) = ledger_db.rows(tables.batch)
    ledger_db.call(batch_options.allow_routes, batch.id, ["own"])

    (run,) = take(ledger_db, 1)

    assert run.routes_allowed == ("own",)


def test_the_calls_of_a_hook_are_booked_to_its_task(ledger_db: LedgerDatabase) -> None:
    """A hook's calls are a row of the task's history, no attempt, and part of its batch's cost."""
    task_id, _ = end(ledger_db, "a", SUCCEEDED)
    (run,) = take(ledger_db, 1)

    ledger_db.call(hook_runs.finish, 1, [HookEnd(run, HookReturn(PAID))])

    (row,) = ledger_db.rows(tables.task_attempt)
    assert (row.task_id, row.outcome, row.cost_micro) == (task_id, "hook", 250)
    query = select(tables.tally.c.delta, tables.tally.c.tokens_in, tables.tally.c.cost_micro)
    of_hook = query.where(tables.tally.c.outcome == "hook")
    assert ledger_db.run(lambda c: c.execute(of_hook).all()) == [(0, 7, 250)]

"""A join is called up once, when the other follow-ups of its parent have ended."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace

import pytest
from sqlalchemy import select

from docllm.agent.ledger import open_work
from docllm.agent.ledger.claims import waking
from docllm.agent.ledger.recovery import reaping
from docllm.agent.ledger.settlements.settling import settle
from docllm.agent.ports import Order, Row, Verdict
from docllm.agent.ports.outcome import FollowUp, Outcome
from docllm.producer.ledger import cancel, joins, long_waits, store, task_story
from docllm.producer.ledger.long_waits import WaitingTasks
from docllm.producer.ledger.outbox import TASK
from docllm.producer.ledger.status.batch_wait import read_progress
from docllm.producer.ports import Item
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import NEVER_TIME
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.joins import JoinRole
from docllm.schemas.task.record.lanes import Lane
from docllm.schemas.task.states import Status
from tests.contract.claims.test_reap import lose, reap_orphans
from tests.contract.support.ledger_dead import delivered, replayed
from tests.support.ledger_database import (
    BATCH,
    GROUP,
    LONGEST,
    RETRY,
    SUCCEEDED,
    TOO_LONG,
    LedgerDatabase,
    new_task,
    settlement,
)


def ordered(key: str, role: JoinRole = JoinRole.NONE, value: bytes = b"line") -> FollowUp:
    return FollowUp(
        key=key,
        value=value,
        type="document",
        tenant="",
        max_attempts=3,
        deadline=None,
        lane=Lane.NORMAL,
        join_role=role,
    )


def succeeding(*follow_ups: FollowUp) -> Outcome:
    return replace(SUCCEEDED, follow_ups=follow_ups)


def split(
    ledger_db: LedgerDatabase, siblings: int, role: JoinRole = JoinRole.WAIT, key: str = "a"
) -> list[int]:
    """Let a task succeed that orders so many pages and a join; return their ids, the join last."""
    (parent,) = ledger_db.load(key)
    pages = [ordered(f"{key}/{number}") for number in range(siblings)]
    ledger_db.settled(parent, succeeding(*pages, ordered(f"{key}/all", role)))
    return [row.id for row in ledger_db.rows(tables.task) if row.parent_id == parent]


def called_up(ledger_db: LedgerDatabase, join: int) -> bool:
    """Return whether a join waits no more, and has one order or record."""
    is_due = bool(ledger_db.task(join).due_at != NEVER_TIME)
    waits = join in {row.task_id for row in ledger_db.rows(tables.waiting)}
    assert is_due is not waits
    return is_due


def ids_of(orders: Sequence[Order]) -> list[int]:
    return [item.id for order in orders for item in order.items]


def asked(ledger_db: LedgerDatabase) -> list[int]:
    """Ask as each agent does once a minute; return the joins that are called up."""
    keys = ledger_db.call(joins.pages_of_keys, GROUP)
    ended = ledger_db.call(joins.ended, GROUP, keys) if keys else []
    return ids_of(ledger_db.call(joins.call_up, GROUP, ended)) if ended else []


def test_a_join_waits_without_a_record_until_its_siblings_have_ended(
    ledger_db: LedgerDatabase,
) -> None:
    """The settle of the last one orders its record, in the same transaction, once."""
    first, second, join = split(ledger_db, 2)
    (waits,) = ledger_db.rows(tables.waiting)
    assert (waits.task_id, waits.reason, waits.due_at) == (join, "CHILDREN", NEVER_TIME)
    assert ledger_db.ask(join).name == "EARLY"
    ledger_db.settled(first, SUCCEEDED)
    assert not called_up(ledger_db, join)

    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(second, owner)
    verdicts, orders = ledger_db.settle_all([settlement(row, owner, SUCCEEDED)])

    assert (verdicts, ids_of(orders)) == ([Verdict.SETTLED], [join])
    assert called_up(ledger_db, join)
    assert ledger_db.settle(row, owner, SUCCEEDED) is Verdict.SETTLED  # an echo orders nothing
    assert asked(ledger_db) == []
    assert ledger_db.settled(join, SUCCEEDED) is Verdict.SETTLED


def test_siblings_that_end_in_one_settle(ledger_db: LedgerDatabase) -> None:
    """A page may have all of them, of several parents."""
    *of_a, join_a = split(ledger_db, 2)
    *of_b, join_b = split(ledger_db, 1, key="b")
    owner = ledger_db.agent().next_owner()
    claims = [ledger_db.claimed(task_id, owner) for task_id in (*of_a, *of_b)]

    _, orders = ledger_db.settle_all([settlement(row, owner, SUCCEEDED) for row in claims])

    assert sorted(ids_of(orders)) == [join_a, join_b]


def test_a_sibling_that_is_tried_again_is_open(ledger_db: LedgerDatabase) -> None:
    """Only an end calls the join up."""
    first, join = split(ledger_db, 1)
    ledger_db.settled(first, RETRY)

    assert not called_up(ledger_db, join)
    assert asked(ledger_db) == []


def test_a_join_without_siblings_runs_at_once(ledger_db: LedgerDatabase) -> None:
    """So does one whose siblings existed and have ended."""
    (done,) = ledger_db.load("done")
    ledger_db.settled(done, SUCCEEDED)
    (join,) = split(ledger_db, 0)
    assert called_up(ledger_db, join)

    (parent,) = ledger_db.load("b")
    twin = ordered("done", value=b"value of done")
    ledger_db.settled(parent, succeeding(twin, ordered("b/all", JoinRole.WAIT)))

    assert called_up(ledger_db, ledger_db.rows(tables.task)[-1].id)


def test_a_sibling_that_existed_is_asked_for(ledger_db: LedgerDatabase) -> None:
    """It knows no join, so an agent's question finds its end; until then the join is open work."""
    (twin_id,) = ledger_db.load("twin")
    (parent,) = ledger_db.load("a")
    twin = ordered("twin", value=b"value of twin")
    ledger_db.settled(parent, succeeding(twin, ordered("a/all", JoinRole.WAIT)))
    join = ledger_db.rows(tables.task)[-1].id
    assert asked(ledger_db) == []
    assert not ledger_db.call(joins.any_ended, GROUP)

    ledger_db.settled(twin_id, SUCCEEDED)
    assert not called_up(ledger_db, join)
    assert not ledger_db.call(open_work.any_open_task, GROUP)
    assert ledger_db.call(joins.any_ended, GROUP)

    assert asked(ledger_db) == [join]
    assert called_up(ledger_db, join)


def test_a_join_of_another_parent_clashes(ledger_db: LedgerDatabase) -> None:
    """It would wait for one parent's tasks alone, so the second parent dies."""
    split(ledger_db, 1)
    (parent,) = ledger_db.load("b")

    assert ledger_db.settled(parent, succeeding(ordered("a/all", JoinRole.WAIT))) is Verdict.DIED
    (letter,) = ledger_db.rows(tables.dead_letter)
    assert letter.error_class == ErrorClass.FOLLOW_CLASH
    assert "join 'a/all'" in letter.error_text


def test_two_joins_do_not_wait_for_each_other(ledger_db: LedgerDatabase) -> None:
    """Each waits for the tasks that are no joins."""
    (parent,) = ledger_db.load("a")
    both = [ordered("a/x", JoinRole.WAIT), ordered("a/y", JoinRole.RUN)]
    ledger_db.settled(parent, succeeding(ordered("a/0"), *both))
    sibling, *of_parent = [row.id for row in ledger_db.rows(tables.task)[1:]]

    ledger_db.settled(sibling, SUCCEEDED)

    assert [called_up(ledger_db, join) for join in of_parent] == [True, True]


# ---- dead siblings


def test_a_dead_sibling_makes_a_join_wait_for_its_replay(ledger_db: LedgerDatabase) -> None:
    """It holds nothing up, but is told; when the sibling was replayed and succeeds, it runs."""
    first, second, join = split(ledger_db, 2)
    ledger_db.settled(first, TOO_LONG)
    ledger_db.settled(second, SUCCEEDED)
    assert not called_up(ledger_db, join)
    assert asked(ledger_db) == []
    assert not ledger_db.call(open_work.any_open_task, GROUP)
    assert not ledger_db.call(joins.any_ended, GROUP)
    assert ledger_db.call(joins.stopped, GROUP) == 1
    (wait,) = ledger_db.call(joins.ledger_waits, GROUP)
    assert wait.text == "1 task waits for a replay of dead tasks that their parents ordered too"
    assert (wait.as_json()["key"], wait.as_json()["first_until"]) == ("dead", None)

    delivered(ledger_db)
    replayed(ledger_db, key="a/0")
    assert ledger_db.call(open_work.any_open_task, GROUP)
    assert ledger_db.call(joins.stopped, GROUP) == 0
    assert not called_up(ledger_db, join)

    owner = ledger_db.agent().next_owner()
    ledger_db.settle(ledger_db.claimed(first, owner, 1), owner, SUCCEEDED)
    assert called_up(ledger_db, join)


def test_a_wait_for_the_batch_ends_with_joins_that_wait_for_a_replay(
    ledger_db: LedgerDatabase,
) -> None:
    """They are open and run no more by themselves; any other open task is waited for."""
    split(ledger_db, 1, key="b")
    first, join = split(ledger_db, 1)
    ledger_db.call(store.close_batch, ledger_db.batch())
    ledger_db.settled(first, TOO_LONG)
    progress = ledger_db.call(read_progress, GROUP, BATCH)
    assert (progress.open, progress.stopped, progress.done) == (3, 0, False)

    sibling, other = [
        row.id for row in ledger_db.rows(tables.task) if row.task_key in {b"b/0", b"b/all"}
    ]
    ledger_db.settled(sibling, SUCCEEDED)
    assert not ledger_db.call(read_progress, GROUP, BATCH).done
    ledger_db.settled(other, SUCCEEDED)

    progress = ledger_db.call(read_progress, GROUP, BATCH)
    assert (progress.open, progress.stopped, progress.done) == (1, 1, True)
    assert not called_up(ledger_db, join)


def test_run_runs_with_dead_siblings(ledger_db: LedgerDatabase) -> None:
    """It may tell the dead ones by their status."""
    first, second, join = split(ledger_db, 2, JoinRole.RUN)
    ledger_db.settled(first, TOO_LONG)
    assert not called_up(ledger_db, join)

    ledger_db.settled(second, SUCCEEDED)

    assert called_up(ledger_db, join)
    page = ledger_db.call(joins.children, join, 0)
    assert page is not None
    assert [(child.key, child.status) for child in page] == [
        ("a/0", Status.DEAD),
        ("a/1", Status.SUCCEEDED),
    ]


@pytest.mark.parametrize("dead_first", [True, False])
def test_die_dies_when_all_have_ended(ledger_db: LedgerDatabase, *, dead_first: bool) -> None:
    """Its next claim ends it; until then it is open work."""
    first, second, join = split(ledger_db, 2, JoinRole.DIE)
    ends: list[Outcome] = [TOO_LONG, SUCCEEDED] if dead_first else [SUCCEEDED, TOO_LONG]
    ledger_db.settled(first, ends[0])
    assert not called_up(ledger_db, join)

    ledger_db.settled(second, ends[1])

    assert called_up(ledger_db, join)
    assert ledger_db.claimed(join, ledger_db.agent().next_owner()).join_role == JoinRole.DOOMED


def test_a_cancelled_sibling_counts_as_dead(ledger_db: LedgerDatabase) -> None:
    """The cancel of one task asks for the joins as a settle does."""
    first, second, join = split(ledger_db, 2, JoinRole.RUN)
    ledger_db.settled(first, SUCCEEDED)

    ledger_db.call(cancel.cancel_one, b"a/1", GROUP, None, "somebody")

    assert ledger_db.status(second) is Status.CANCELLED
    assert called_up(ledger_db, join)


def test_the_reaper_calls_a_join_up(ledger_db: LedgerDatabase) -> None:
    """A sibling that dies with its agents ends too."""
    first, join = split(ledger_db, 1, JoinRole.RUN)
    ledger_db.set(tables.task, first, lease_losses=2)
    lease = ledger_db.agent()
    ledger_db.claimed(first, lease.next_owner())
    lose(ledger_db, lease)

    assert reap_orphans(ledger_db) == (0, 1)

    assert called_up(ledger_db, join)


def test_a_reset_sibling_is_open(ledger_db: LedgerDatabase) -> None:
    """It runs again."""
    first, join = split(ledger_db, 1, JoinRole.RUN)
    ledger_db.claimed(first, ledger_db.agent().next_owner())
    ledger_db.ago(tables.task.c.due_at, 1, first)
    ledger_db.call(reaping.reset_overdue, GROUP, [first])

    assert not called_up(ledger_db, join)


# ---- joins that are replayed, cancelled or too late


def test_a_join_that_died_of_a_child_waits_again_after_a_replay(ledger_db: LedgerDatabase) -> None:
    """Both are replayed in one page; the join runs when the other one has succeeded."""
    first, join = split(ledger_db, 1, JoinRole.DIE)
    ledger_db.settled(first, TOO_LONG)
    ledger_db.settled(join, TOO_LONG)
    delivered(ledger_db)

    assert replayed(ledger_db).items == [Item(TASK, first, 1)]

    assert not called_up(ledger_db, join)
    assert ledger_db.task(join).join_role == JoinRole.DIE
    owner = ledger_db.agent().next_owner()
    ledger_db.settle(ledger_db.claimed(first, owner, 1), owner, SUCCEEDED)
    assert called_up(ledger_db, join)
    assert ledger_db.claimed(join, owner, 1).fence == 1


def test_a_join_that_died_by_itself_runs_at_once_after_a_replay(ledger_db: LedgerDatabase) -> None:
    """Its siblings have succeeded, so it has nothing to wait for."""
    first, join = split(ledger_db, 1)
    ledger_db.settled(first, SUCCEEDED)
    ledger_db.settled(join, TOO_LONG)
    delivered(ledger_db)

    assert replayed(ledger_db).items == [Item(TASK, join, 1)]

    assert called_up(ledger_db, join)


def test_a_replayed_join_keeps_to_its_rule_for_dead_siblings(ledger_db: LedgerDatabase) -> None:
    """The next question lets it run, or die, with those that are dead still."""
    first, join = split(ledger_db, 1, JoinRole.RUN)
    ledger_db.settled(first, TOO_LONG)
    ledger_db.settled(join, TOO_LONG)
    delivered(ledger_db)
    replayed(ledger_db, key="a/all")
    assert not called_up(ledger_db, join)

    assert asked(ledger_db) == [join]


def test_a_waiting_join_is_cancelled_with_its_batch(ledger_db: LedgerDatabase) -> None:
    """A replay of the batch makes it wait again."""
    first, join = split(ledger_db, 1)
    ledger_db.cancel()
    assert ledger_db.call(cancel.cancel_page, ledger_db.batch().id).cancelled == 2
    assert ledger_db.rows(tables.waiting) == []
    assert ledger_db.status(join) is Status.CANCELLED

    replayed(ledger_db, batch=BATCH, cancelled=True)

    assert (ledger_db.status(first), ledger_db.status(join)) == (Status.PENDING, Status.PENDING)
    assert not called_up(ledger_db, join)


def test_a_join_s_deadline_ends_its_wait(ledger_db: LedgerDatabase) -> None:
    """It is called up then, and its claim gives it up."""
    _, join = split(ledger_db, 1)
    ledger_db.ago(tables.waiting.c.due_at, 1, join)

    assert ids_of(ledger_db.call(waking.call_up_due, GROUP).orders) == [join]


def test_resume_leaves_a_waiting_join(ledger_db: LedgerDatabase) -> None:
    """It has no route to be resumed; only its siblings' ends make it due."""
    first, join = split(ledger_db, 1)
    ledger_db.set(tables.task, join, route="slow")

    assert ledger_db.call(long_waits.read, WaitingTasks(GROUP)) == []
    ledger_db.call(long_waits.resume, GROUP, "slow", "somebody")

    assert not called_up(ledger_db, join)
    assert ledger_db.status(first) is Status.PENDING


# ---- what people and handlers see


def test_show_names_the_tasks_for_which_a_join_waits(ledger_db: LedgerDatabase) -> None:
    """Those that have not succeeded, with their states."""
    first, second, join = split(ledger_db, 2)
    ledger_db.settled(first, TOO_LONG)

    story = ledger_db.call(task_story.story, GROUP, BATCH, "a/all")

    assert story is not None
    assert story.waits == (
        "for 2 of 2 tasks that its parent ordered: 'a/0' (dead), 'a/1' (pending)"
    )
    ledger_db.settled(second, SUCCEEDED)
    assert join


def test_children_come_in_pages(ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which they were ordered; a page has few bytes, but one task at least."""
    *siblings, join = split(ledger_db, 5)
    for task_id in siblings:
        ledger_db.settled(task_id, SUCCEEDED)
    monkeypatch.setattr(joins, "CHILDREN_BYTES", 2 * len(SUCCEEDED.body))

    pages, after = [], 0
    while page := ledger_db.call(joins.children, join, after):
        pages.append([child.key for child in page])
        after = page[-1].id

    assert pages == [["a/0", "a/1"], ["a/2", "a/3"], ["a/4"]]
    assert ledger_db.call(joins.children, siblings[0], 0) is None


# ---- at the same time


def _settling(ledger_db: LedgerDatabase, row: Row, owner: int) -> Callable[..., list[Order]]:
    def work(connection: object) -> list[Order]:
        of_claim = [settlement(row, owner, SUCCEEDED)]
        return settle(connection, GROUP, of_claim, 1_700_000_000.0, LONGEST)[1]  # type: ignore[arg-type]

    return work


@pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)
def test_the_last_two_siblings_end_at_the_same_time(ledger_db: LedgerDatabase) -> None:
    """Neither sees the other's end at first. The second settle waits, and then it does."""
    first, second, join = split(ledger_db, 2)
    owner = ledger_db.agent().next_owner()
    one, two = (
        _settling(ledger_db, ledger_db.claimed(task_id, owner), owner)
        for task_id in (first, second)
    )

    with ThreadPoolExecutor(1) as thread, ledger_db.database.engine.begin() as connection:
        assert one(connection) == []
        other = thread.submit(ledger_db.run, two)
        with pytest.raises(FutureTimeoutError):  # it waits for the first one's locks
            other.result(0.5)
        connection.commit()
        assert ids_of(other.result(30)) == [join]

    assert called_up(ledger_db, join)


@pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)
def test_a_sibling_that_ends_while_its_join_is_made(ledger_db: LedgerDatabase) -> None:
    """The settle of the twin sees no join, that of the parent sees it open: the question helps."""
    (twin_id,) = ledger_db.load("twin")
    (parent,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    twin = _settling(ledger_db, ledger_db.claimed(twin_id, owner), owner)
    outcome = succeeding(ordered("twin", value=b"value of twin"), ordered("a/all", JoinRole.WAIT))

    with ledger_db.database.engine.begin() as connection:
        twin(connection)
        ledger_db.settled(parent, outcome)

    join = ledger_db.rows(tables.task)[-1].id
    assert not called_up(ledger_db, join)
    assert asked(ledger_db) == [join]


@pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)
def test_a_settle_does_not_wait_for_who_holds_a_join(ledger_db: LedgerDatabase) -> None:
    """A cancel locks the join before its row of `waiting`: to wait for it would be a deadlock."""
    first, join = split(ledger_db, 1, JoinRole.DIE)
    held = select(tables.task.c.id).where(tables.task.c.id == join).with_for_update()

    with ThreadPoolExecutor(1) as thread, ledger_db.database.engine.begin() as connection:
        connection.execute(held)
        settling = thread.submit(ledger_db.settled, first, TOO_LONG)
        try:
            assert settling.result(10) is Verdict.SETTLED
        finally:
            connection.rollback()

    assert not called_up(ledger_db, join)
    assert asked(ledger_db) == [join]
    assert ledger_db.task(join).join_role == JoinRole.DOOMED


def test_a_plain_settle_costs_no_statement_more(ledger_db: LedgerDatabase) -> None:
    """A task for which no join waits ends as before, and so does a follow-up."""
    (plain,) = ledger_db.load("plain")
    (parent,) = ledger_db.load("parent")
    ledger_db.settled(parent, succeeding(ordered("child")))
    child = ledger_db.rows(tables.task)[-1].id
    owner = ledger_db.agent().next_owner()
    counts = []
    for task_id in (plain, child):
        row = ledger_db.claimed(task_id, owner)
        with ledger_db.statements() as statements:
            ledger_db.settle(row, owner, SUCCEEDED)
        counts.append(len(statements))
        assert not any("waiting" in text for text in statements)

    assert counts[0] == counts[1]
    assert new_task("x").join_role is JoinRole.NONE

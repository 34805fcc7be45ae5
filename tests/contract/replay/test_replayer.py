"""The duty of agents that applies stored replays, whoever ordered them and whoever is killed."""

from collections.abc import Callable
from typing import Any

import pytest

from docllm.agent.maintenance.group_work import GroupWork
from docllm.producer.ledger import cancel, replay_progress
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.replay_progress import ItemState, ReplayRequest
from docllm.producer.ledger.status import group_status
from docllm.producer.loading.foreign_records import TOO_SLOW
from docllm.producer.replay import runs
from docllm.producer.replay.runs import Cursor
from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger import tables
from docllm.schemas.runtime import crash
from docllm.schemas.task.line.schema_cost import LIGHT_US
from docllm.schemas.task.record.topics import Topics
from docllm.schemas.task.states import Status
from tests.contract.replay.replays import Site
from tests.contract.support.ledger_dead import dead, delivered, killed, request, set_aside
from tests.support.ledger_database import BATCH, DEAD, GROUP, LedgerDatabase


class KilledError(BaseException):
    """Ends a program as SIGKILL would."""


@pytest.fixture
def site(ledger_db: LedgerDatabase) -> Site:
    return Site(ledger_db)


def replays(ledger_db: LedgerDatabase) -> set[tuple[Status, int, int]]:
    """Return status, replays and fence of all tasks."""
    return {(Status(row.status), row.replays, row.fence) for row in ledger_db.rows(tables.task)}


async def test_an_agent_applies_what_a_killed_command_stored(
    site: Site, ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is killed right after it stored the run; an agent applies all of it."""

    def die(point: str) -> None:
        if point == "replay.stored":
            raise KilledError

    dead(ledger_db, "a", "b")
    set_aside(ledger_db, b'{"id":"c","prompt":"Say hello"}')
    with monkeypatch.context() as killing:
        killing.setattr(crash, "reach", die)
        with pytest.raises(KilledError):
            await site.replay.store("ann", request(dispositions=("permanent", "undecodable")))
    (run,) = ledger_db.call(replay_progress.unfinished, GROUP)

    agent = site.replayer()
    while site.counts(run).get(ItemState.WAITS):
        await agent.apply()
    await agent.apply()
    await agent.apply()

    assert ledger_db.call(replay_progress.unfinished, GROUP) == []
    assert site.counts(run) == {ItemState.REPLAYED: 3}
    assert {status for status, _, _ in replays(ledger_db)} == {Status.PENDING}
    assert len(site.publisher.records) == 3


@pytest.mark.parametrize("point", ["replay.page_applied", "replay.page_published"])
async def test_an_agent_that_is_killed_between_pages_is_replaced(
    site: Site, ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Another agent applies the other pages; the order of the first page is kept or sent."""

    def die(reached: str) -> None:
        if reached == point:
            raise KilledError

    dead(ledger_db, *(f"k{number}" for number in range(5)))
    run = await site.stored(ReplayRequest(Selection(), rate=2.0))
    with monkeypatch.context() as killing:
        killing.setattr(crash, "reach", die)
        with pytest.raises(KilledError):
            await site.replayer().apply()
    assert site.counts(run) == {ItemState.REPLAYED: 2, ItemState.WAITS: 3}

    other = site.replayer()
    while not runs_ended(ledger_db):
        ledger_db.ago(tables.replay_run.c.next_at, 1)
        await other.apply()

    assert site.counts(run) == {ItemState.REPLAYED: 5}
    assert replays(ledger_db) == {(Status.PENDING, 1, 1)}
    assert len(site.publisher.records) == (3 if point == "replay.page_applied" else 5)
    assert ledger_db.count(tables.outbox) == (1 if point == "replay.page_applied" else 0)


def runs_ended(ledger_db: LedgerDatabase) -> bool:
    return not ledger_db.call(replay_progress.any_unfinished, GROUP)


async def test_two_agents_share_a_run_and_its_rate(site: Site, ledger_db: LedgerDatabase) -> None:
    """Each second lets one page through, whoever comes first; no task is replayed twice."""
    dead(ledger_db, *(f"k{number}" for number in range(8)))
    run = await site.stored(ReplayRequest(Selection(), rate=2.0))
    agents = site.replayer(), Site(ledger_db).replayer()
    done = []
    for _ in range(4):
        for agent in agents:
            await agent.apply()
        done.append(site.counts(run)[ItemState.REPLAYED])
        ledger_db.ago(tables.replay_run.c.next_at, 1)

    assert done == [2, 4, 6, 8]
    assert replays(ledger_db) == {(Status.PENDING, 1, 1)}


async def test_a_slow_run_holds_up_no_other(site: Site, ledger_db: LedgerDatabase) -> None:
    """A run at one item an hour once stopped each later replay of its group."""
    first, second, *others = dead(ledger_db, "a", "b", "c", "d")
    slow = await site.stored(ReplayRequest(Selection(limit=2), rate=1 / 3600))
    fast = await site.stored(ReplayRequest(Selection(), cap=3))
    agent = site.replayer()
    for _ in range(3):
        await agent.apply()

    assert site.counts(slow) == {ItemState.REPLAYED: 1, ItemState.WAITS: 1}
    assert site.counts(fast) == {ItemState.REPLAYED: 3, ItemState.SKIPPED: 1}
    assert ledger_db.task(second).replays == 1
    assert {ledger_db.status(one) for one in (first, *others)} == {Status.PENDING}


async def test_a_run_that_fails_holds_up_no_other(
    site: Site, ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass begins with another run."""
    dead(ledger_db, "a", "b")
    bad = await site.stored(request(limit=1))
    good = await site.stored(request())
    advance = site.applier.advance

    async def fail(run: Any, place: Any) -> Any:
        if run.id == bad.id:
            raise ConfigError("this run is bad")
        return await advance(run, place)

    monkeypatch.setattr(site.applier, "advance", fail)
    agent = site.replayer()
    failed = 0
    for _ in range(2):
        try:
            await agent.apply()
        except ConfigError:
            failed += 1

    assert failed == 2
    assert site.counts(good) == {ItemState.REPLAYED: 2}


async def test_an_agent_leaves_a_run_that_is_being_stored(
    site: Site, ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent neither applies nor drops the run: the storing goes on where it was."""
    monkeypatch.setattr(runs, "STORED_PAGE", 2)
    dead(ledger_db, "a", "b", "c")
    order = request()
    run_id = ledger_db.call(runs.begin, GROUP, "ann", order)
    cursor = ledger_db.call(runs.store, group=GROUP, run_id=run_id, request=order, start=Cursor())
    assert cursor is not None

    await site.replayer().apply()
    assert {row.status for row in ledger_db.rows(tables.task)} == {Status.DEAD}

    assert (
        ledger_db.call(runs.store, group=GROUP, run_id=run_id, request=order, start=cursor) is None
    )
    await site.replayer().apply()
    assert replays(ledger_db) == {(Status.PENDING, 1, 1)}


async def test_a_cancel_meanwhile_ends_the_tasks_and_not_the_run(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """Tasks that were replayed are cancelled, the others stay dead and are passed over."""
    dead(ledger_db, *(f"k{number}" for number in range(4)))
    run = await site.stored(ReplayRequest(Selection(), rate=2.0))
    agent = site.replayer()
    await agent.apply()

    ledger_db.cancel()
    batch_id = ledger_db.batch(BATCH).id
    ledger_db.call(cancel.cancel_page, batch_id)
    while not runs_ended(ledger_db):
        ledger_db.ago(tables.replay_run.c.next_at, 1)
        await agent.apply()

    assert site.counts(run) == {ItemState.REPLAYED: 2, ItemState.SKIPPED: 2}
    assert [Status(row.status) for row in ledger_db.rows(tables.task)] == [
        Status.CANCELLED,
        Status.CANCELLED,
        Status.DEAD,
        Status.DEAD,
    ]


async def test_a_task_whose_dead_letter_is_on_its_way_is_taken_later(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """The agent looks again and again, with pauses, and does not end the run."""
    (one,) = ledger_db.load("a")
    killed(ledger_db, one, DEAD)
    await site.stored(request())
    agent = site.replayer()
    for _ in range(6):
        await agent.apply()
    assert ledger_db.status(one) is Status.DEAD
    assert not runs_ended(ledger_db)

    delivered(ledger_db)
    for _ in range(3):
        await agent.apply()

    assert ledger_db.status(one) is Status.PENDING
    assert runs_ended(ledger_db)


async def test_another_groups_runs_are_left(site: Site, ledger_db: LedgerDatabase) -> None:
    (one,) = ledger_db.load("a", into="theirs", group="other")
    killed(ledger_db, one)
    delivered(ledger_db)
    run_id = ledger_db.call(runs.begin, "other", "bob", request())
    ledger_db.call(runs.store, group="other", run_id=run_id, request=request(), start=Cursor())

    await site.replayer().apply()

    assert ledger_db.status(one) is Status.DEAD


async def test_a_record_that_takes_long_is_read_apart(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """A record that exceeds the time of the other process stays, with the reason."""
    heavy = b'{"id":"a","prompt":"x","metadata":{"k":[%s]}}' % b",".join([b"1"] * LIGHT_US)
    slow, light = set_aside(ledger_db, heavy, b'{"id":"b","prompt":"Say hello"}')
    run = await site.stored(request(dispositions=("undecodable",)))
    read: list[Callable[[], object]] = []

    async def apart(call: Callable[[], object]) -> object:
        read.append(call)
        raise TimeoutError

    site.applier.apart = apart  # type: ignore[assignment]
    agent = site.replayer()
    for _ in range(4):
        await agent.apply()

    assert len(read) == 1
    assert ledger_db.call(replay_progress.unread, run.id, 9) == [(slow, TOO_SLOW)]
    assert site.counts(run) == {ItemState.REPLAYED: 1, ItemState.UNREAD: 1}
    assert light not in dict(ledger_db.call(replay_progress.unread, run.id, 9))


async def test_records_that_fill_the_memory_come_in_several_pages(
    site: Site, ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page has at least one record, however large it is."""
    monkeypatch.setattr(runs, "READ_BYTES", 50)
    line = b'{"id":"%d","prompt":"Say hello"}'
    set_aside(ledger_db, *(line % number for number in range(3)))
    run = await site.stored(request(dispositions=("undecodable",)))
    agent, done = site.replayer(), []
    for _ in range(6):
        await agent.apply()
        done.append(site.counts(run).get(ItemState.REPLAYED, 0))

    assert list(dict.fromkeys(done)) == [0, 1, 2, 3]


async def test_an_unfinished_replay_is_work_that_is_left(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """Without this, an agent with `--until-done` would leave before it applied the replay."""
    dead(ledger_db, "a")
    nothing: Any = None
    work = GroupWork(
        transactions=ledger_db.transactions,
        relay=nothing,
        admin=nothing,
        topics=Topics(GROUP),
        reads_inbox=False,
    )
    assert not await work.any_open_task()

    await site.stored(request())

    assert await work.any_open_task()
    assert await work.any_work()


async def test_the_status_names_unfinished_replays(site: Site, ledger_db: LedgerDatabase) -> None:
    """A replay is shown with its items, rate and person, until its run has ended."""
    dead(ledger_db, "a", "b", "c")
    run = await site.stored(ReplayRequest(Selection(batch=BATCH), rate=2.0))
    agent = site.replayer()
    await agent.apply()

    assert ledger_db.call(group_status.read_group, GROUP).as_json()["replays"] == [
        {
            "id": run.id,
            "actor": "ann",
            "selection": f"--batch {BATCH}",
            "done": 2,
            "total": 3,
            "rate_per_s": 2.0,
        }
    ]

    while not runs_ended(ledger_db):
        ledger_db.ago(tables.replay_run.c.next_at, 1)
        await agent.apply()
    assert ledger_db.call(group_status.read_group, GROUP).replays == ()

"""The program of a replay over a real ledger: stored, paced, applied, published, reported."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection

from docllm.producer.ledger import outbox, replay_progress
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.outbox import QUARANTINE
from docllm.producer.ledger.replay_progress import ItemState, ReplayRequest
from docllm.producer.replay import records, runs
from docllm.producer.replay.applier import share
from docllm.producer.replay.following import CHECK_EVERY_S, STILL_S
from docllm.producer.replay.runs import Cursor
from docllm.schemas.ledger import tables
from docllm.schemas.task.record.envelope import decode
from docllm.schemas.task.states import Status
from tests.contract.replay.replays import Site
from tests.contract.support.ledger_dead import dead, delivered, killed, request, set_aside
from tests.support.ledger_database import DEAD, GROUP, LedgerDatabase

Result = TypeVar("Result")


@pytest.fixture
def site(ledger_db: LedgerDatabase) -> Site:
    return Site(ledger_db)


async def test_a_replay_is_stored_applied_and_published(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """One run has tasks and records.

    When it ends, each new record is on the topic, and no order is left.
    """
    ids = dead(ledger_db, "a", "b")
    set_aside(ledger_db, b'{"id":"c","prompt":"Say hello"}', b"garbage")
    run = await site.stored(request(dispositions=("permanent", "undecodable")))

    report = await site.replay.follow(run)

    sent = {
        decode(record.headers).task_id: decode(record.headers).fence
        for record in site.publisher.records
    }
    assert site.counts(run) == {ItemState.REPLAYED: 3, ItemState.UNREAD: 1}
    assert {task_id: sent[task_id] for task_id in ids} == dict.fromkeys(ids, 1)
    assert len(sent) == 3
    assert (ledger_db.count(tables.outbox), site.progress[-1], report.unsent) == (0, 4, False)
    ((_, reason),) = ledger_db.call(replay_progress.unread, run.id, 9)
    assert reason.startswith("line is not JSON")


async def test_nothing_selected_is_nothing(site: Site, ledger_db: LedgerDatabase) -> None:
    """If nothing is selected, there is no run and no record."""
    assert await site.replay.store("ann", request()) is None
    assert ledger_db.count(tables.replay_run) == 0


async def test_a_resumed_run_goes_on_where_it_was(site: Site, ledger_db: LedgerDatabase) -> None:
    """Applied items are not applied again; the progress counts them."""
    first, *_ = dead(ledger_db, "a", "b", "c")
    run = await site.stored(request(limit=3))
    ledger_db.call(runs.finish, run.id, outbox.TASK, {ItemState.REPLAYED: [first]})
    (resumed,) = ledger_db.call(replay_progress.unfinished, GROUP)

    await site.replay.follow(resumed)

    assert (site.counts(run), site.progress) == ({ItemState.REPLAYED: 3}, [1, 3, 3])
    assert [row.status for row in ledger_db.rows(tables.task)] == [
        Status.DEAD,
        Status.PENDING,
        Status.PENDING,
    ]


async def test_a_dropped_run_is_stored_again(
    site: Site, ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replay that started meanwhile took the run for one that was killed.

    Nothing was applied, so it begins again.
    """
    monkeypatch.setattr(runs, "STORED_PAGE", 2)
    dead(ledger_db, "a", "b", "c")
    store, calls = runs.store, 0

    def torn(*arguments: object) -> Cursor | None:
        nonlocal calls
        calls += 1
        return store(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "store", torn)
    transactions = site.replay.transactions
    dropped = False

    async def between(call: Callable[[], Result]) -> Result:
        nonlocal dropped
        if calls == 1 and not dropped:
            dropped = True
            ledger_db.call(runs.drop_unstored, GROUP)
        return await transactions.executor(call)

    site.replay.transactions = replace(transactions, executor=between)
    run = await site.stored(request())

    assert dropped
    assert run.total == 3
    assert [latest.id for latest in ledger_db.call(replay_progress.latest, GROUP, 9)] == [run.id]


async def test_a_rate_spreads_the_items(site: Site, ledger_db: LedgerDatabase) -> None:
    """Ten items at four a second pass in pages of four, a second after each whole page."""
    dead(ledger_db, *(f"k{number}" for number in range(10)))
    run = await site.stored(ReplayRequest(Selection(), rate=4.0))
    site.skip_waits()

    await site.replay.follow(run)

    assert list(dict.fromkeys(site.progress)) == [0, 4, 8, 10]
    assert [
        0 < delay <= most for delay, most in zip(site.clock.slept, (1.01, 1.01, 0.51), strict=True)
    ] == [True] * 3


async def test_all_who_work_at_a_run_have_one_rate(site: Site, ledger_db: LedgerDatabase) -> None:
    """A bug once gave each process the whole rate.

    A replay that was resumed beside the first then doubled the load on the provider.
    """
    dead(ledger_db, *(f"k{number}" for number in range(10)))
    run = await site.stored(ReplayRequest(Selection(), rate=4.0))
    other = Site(ledger_db)

    pages = [site.page(run), other.page(run), site.page(run)]

    assert [page.done for page in pages] == [4, 0, 0]
    assert [page.wait_s > 0 for page in pages] == [False, True, True]
    ledger_db.ago(tables.replay_run.c.next_at, 1)
    assert other.page(run).done == 4


async def test_records_are_not_read_before_the_rate_lets_them_through(
    site: Site, ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow schema is not checked in vain, whoever of several asks meanwhile."""
    numbers = set_aside(ledger_db, *(b'{"id":"k%d","prompt":"p"}' % n for n in range(3)))
    run = await site.stored(ReplayRequest(Selection(dispositions=("undecodable",)), rate=2.0))
    other, read = Site(ledger_db), list[int]()
    kept = records.kept

    def noted(connection: Connection, run_id: int, after: int, limit: int) -> Any:
        rows = kept(connection, run_id, after, limit)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(records, "kept", noted)

    first = await site.applier.advance(run, Cursor(QUARANTINE))
    waits = [
        await applier.advance(run, Cursor(QUARANTINE, numbers[1]))
        for applier in (site.applier, other.applier)
    ]

    assert (first.wait_s, read) == (0.0, [2])
    assert [step.cursor for step in waits] == [Cursor(QUARANTINE, numbers[1])] * 2
    assert all(step.wait_s > 0 for step in waits)
    ledger_db.ago(tables.replay_run.c.next_at, 1)
    assert (await other.applier.advance(run, Cursor(QUARANTINE, numbers[1]))).wait_s == 0.0
    assert read == [2, 1]


async def test_a_clock_that_was_set_back_holds_nothing_up(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """The next items do not wait for as long as the clock was set back."""
    dead(ledger_db, "a")
    run = await site.stored(ReplayRequest(Selection(), rate=0.5))
    ledger_db.ago(tables.replay_run.c.next_at, -3600)

    assert site.page(run).done == 1


async def test_a_task_waits_for_its_letter(site: Site, ledger_db: LedgerDatabase) -> None:
    """The wait is reported once; when the dead letter has arrived the task is replayed."""
    (task_id,) = ledger_db.load("a")
    killed(ledger_db, task_id, DEAD)
    run = await site.stored(request())
    naps = 0

    def arrive() -> None:
        nonlocal naps
        naps += 1
        if naps > 8:
            delivered(ledger_db)

    site.clock.witness = arrive

    await site.replay.follow(run)

    alone, early = site.notes
    assert ledger_db.status(task_id) is Status.PENDING
    assert "no agent of group group is alive, so this command applies" in alone
    assert "until their dead letters are on their topic" in early


async def test_a_replay_publishes_dead_letters_whose_agent_was_killed(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """The agent of the dead task was killed, and no other agent runs.

    The replay sends the order that the agent left, once its grace is over.
    """
    (task_id,) = ledger_db.load("a")
    killed(ledger_db, task_id, DEAD)
    ledger_db.ago(tables.outbox.c.due_at, 1)
    run = await site.stored(request())

    await site.replay.follow(run)

    letter, record = site.publisher.records
    assert (letter.topic, record.topic) == (f"{GROUP}.dlq", f"{GROUP}.tasks")
    assert dict(letter.headers)["docllm-disposition"] == b"permanent"
    assert ledger_db.status(task_id) is Status.PENDING


async def test_without_a_bus_the_ledger_is_right_all_the_same(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """Every task is replayed, the orders wait for any agent, and a person is notified."""
    ids = dead(ledger_db, *(f"k{number}" for number in range(5)))
    site.publisher.down = True
    run = await site.stored(ReplayRequest(Selection(), rate=2.0))
    site.skip_waits()

    report = await site.replay.follow(run)

    assert report.unsent
    assert {ledger_db.status(task_id) for task_id in ids} == {Status.PENDING}
    assert sum(len(outbox.unpack(row.items)) for row in ledger_db.rows(tables.outbox)) == 5


async def test_a_replay_waits_for_items_that_another_process_has_locked(
    site: Site, ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends when none of its items waits, whoever finished the last one."""
    dead(ledger_db, "a")
    run = await site.stored(request())
    take = runs.take

    def elsewhere(*arguments: Any) -> Any:
        return [] if len(site.clock.slept) < 3 else take(*arguments)

    monkeypatch.setattr(runs, "take", elsewhere)

    await site.replay.follow(run)

    assert site.counts(run) == {ItemState.REPLAYED: 1}
    assert site.clock.slept[:3] == [0.5] * 3


# ---- beside agents


async def test_the_command_leaves_a_run_to_the_agents(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """While an agent is alive the command applies nothing; it shows how far the agents are."""
    dead(ledger_db, "a", "b")
    run = await site.stored(request())
    ledger_db.agent()
    replayer = site.replayer()
    site.clock.between = replayer.apply

    report = await site.replay.follow(run)

    assert (site.notes, report.run.counts) == ([], {ItemState.REPLAYED: 2})
    assert list(dict.fromkeys(site.progress)) == [0, 2]


async def test_the_command_says_that_a_run_stands_still(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """While agents are alive and apply nothing, it says so twice a minute, and goes on."""
    dead(ledger_db, "a")
    run = await site.stored(request())
    ledger_db.agent()
    ledger_db.ago(tables.agent.c.seen_at, -600)  # alive, however long the test takes
    replayer, naps = site.replayer(), 0

    async def live() -> None:
        nonlocal naps
        naps += 1
        if naps >= 2.5 * STILL_S / CHECK_EVERY_S:
            await replayer.apply()

    site.clock.between = live

    await site.replay.follow(run)

    assert [note.partition(",")[0] for note in site.notes] == [
        f"replay {run.id} makes no progress"
    ] * 2


async def test_the_command_applies_a_run_whose_agents_died(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """The command says that it applies the run; an agent that starts again shares the rest."""
    dead(ledger_db, *(f"k{number}" for number in range(6)))
    run = await site.stored(ReplayRequest(Selection(), rate=2.0))
    ledger_db.agent()
    replayer, naps = site.replayer(), 0

    async def live() -> None:
        nonlocal naps
        naps += 1
        ledger_db.ago(tables.replay_run.c.next_at, 1)
        if naps == 3:
            site.agents_die()
        elif naps == 4:
            ledger_db.agent()
            await replayer.apply()

    site.clock.between = live

    await site.replay.follow(run)

    assert [note.partition(",")[0] for note in site.notes] == ["no agent of group group is alive"]
    assert list(dict.fromkeys(site.progress)) == [0, 2, 4, 6]
    assert {row.replays for row in ledger_db.rows(tables.task)} == {1}


async def test_the_command_tells_why_records_are_no_tasks_that_an_agent_read(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """The reason is stored with the item; a hostile one is cut."""
    garbage, long = set_aside(ledger_db, b"garbage", b'{"id":"a"}', disposition="undecodable")
    run = await site.stored(request(dispositions=("undecodable",)))
    ledger_db.agent()
    replayer = site.replayer()
    site.clock.between = replayer.apply

    report = await site.replay.follow(run)

    reasons = dict(ledger_db.call(replay_progress.unread, run.id, 9))
    assert report.run.counts == {ItemState.UNREAD: 2}
    assert reasons[garbage].startswith("line is not JSON")
    assert 0 < len(reasons[long]) <= 500


@pytest.mark.parametrize(("rate", "size"), [(0.5, 1), (1.0, 1), (3.7, 3), (10_000.0, 500)])
def test_a_page_is_a_seconds_share(rate: float, size: int) -> None:
    """A page has at least one item, and at most a full page."""
    assert share(rate, 500) == size

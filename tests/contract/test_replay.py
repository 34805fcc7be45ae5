"""The program of a replay over a real ledger: stored, paced, applied, published, reported."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from producer.ledger import outbox
from producer.ledger.selection import Selection
from producer.ports import Refusal
from producer.relay.relay import Relay
from producer.replay import runs
from producer.replay.runner import Replay, share
from producer.replay.runs import Cursor, ItemState, Page, ReplayRequest, Run
from schemas.ledger import tables
from schemas.task.envelope import Outgoing, decode
from schemas.task.states import Status
from schemas.task.topics import Topics
from tests.contract.ledger_dead import dead, delivered, killed, request, set_aside, stored
from tests.contract.ledger_parts import DEAD, GROUP, LedgerDatabase

Result = TypeVar("Result")


class FakeClock:
    """Time that passes only in sleeps; `witness` is called after each."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.witness: Callable[[], None] = lambda: None

    def now_s(self) -> float:
        return self.now

    def utc_s(self) -> float:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self.now += delay_s
        self.witness()


class FakePublisher:
    """Accepts every record, or refuses all while it is down."""

    def __init__(self) -> None:
        self.records: list[Outgoing] = []
        self.down = False

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        if self.down:
            return [Refusal("no broker", permanent=False)] * len(records)
        self.records += records
        return [None] * len(records)

    def waiting(self) -> int:
        return 0

    async def close(self) -> None:
        pass


class Site:
    """A replay over these ledger_db, and its notes."""

    def __init__(self, ledger_db: LedgerDatabase) -> None:
        self.ledger_db = ledger_db
        self.clock = FakeClock()
        self.publisher = FakePublisher()
        self.notes: list[str] = []
        self.progress: list[int] = []
        relay = Relay(
            transactions=ledger_db.transactions,
            publisher=self.publisher,
            topics=Topics(GROUP),
            clock=self.clock,
        )
        self.replay = Replay(
            transactions=ledger_db.transactions,
            relay=relay,
            clock=self.clock,
            group=GROUP,
            max_attempts_of=lambda _: 5,
            progress=self.progress.append,
            note=self.notes.append,
        )

    async def stored(self, request: ReplayRequest) -> Run:
        run = await self.replay.store("ann", request)
        assert run is not None
        return run

    def skip_waits(self) -> None:
        """Let the sleeps that the rate causes pass at once, in the database too."""
        self.clock.witness = lambda: self.ledger_db.ago(tables.replay_run.c.next_at, 1)

    def page(self, run: Run) -> Page:
        """Return the next page of tasks."""
        stored_run = self.ledger_db.run(
            lambda c: self.replay._page(c, run=run, kind=outbox.TASK, after=0, ids=range(0))
        )
        assert stored_run is not None
        return stored_run

    def counts(self, run: Run) -> dict[ItemState, int]:
        stored_run = self.ledger_db.run(lambda c: runs.find(c, run.id))
        assert stored_run is not None
        return stored_run.counts


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

    report = await site.replay.apply(run)

    sent = {
        decode(record.headers).task_id: decode(record.headers).fence
        for record in site.publisher.records
    }
    assert site.counts(run) == {ItemState.REPLAYED: 3, ItemState.UNREAD: 1}
    assert {task_id: sent[task_id] for task_id in ids} == dict.fromkeys(ids, 1)
    assert len(sent) == 3
    assert (ledger_db.count(tables.outbox), site.progress[-1], report.unsent) == (0, 4, False)
    assert next(iter(report.unread.values())).startswith("line is not JSON")


async def test_nothing_selected_is_nothing(site: Site, ledger_db: LedgerDatabase) -> None:
    """If nothing is selected, there is no run and no record."""
    assert await site.replay.store("ann", request()) is None
    assert ledger_db.count(tables.replay_run) == 0


async def test_a_resumed_run_goes_on_where_it_was(site: Site, ledger_db: LedgerDatabase) -> None:
    """Applied items are not applied again; the progress counts them."""
    first, *_ = dead(ledger_db, "a", "b", "c")
    run = await site.stored(request(limit=3))
    ledger_db.run(lambda c: runs.mark(c, run.id, outbox.TASK, [first], ItemState.REPLAYED))
    (resumed,) = ledger_db.run(lambda c: runs.unfinished(c, GROUP))

    await site.replay.apply(resumed)

    assert (site.counts(run), site.progress) == ({ItemState.REPLAYED: 3}, [3])
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
    transactions = site.replay._transactions
    dropped = False

    async def between(call: Callable[[], Result]) -> Result:
        nonlocal dropped
        if calls == 1 and not dropped:
            dropped = True
            ledger_db.run(lambda c: runs.drop_unstored(c, GROUP))
        return await transactions.executor(call)

    site.replay._transactions = replace(transactions, executor=between)
    run = await site.stored(request())

    assert dropped
    assert run.total == 3
    assert [latest.id for latest in ledger_db.run(lambda c: runs.latest(c, GROUP, 9))] == [run.id]


async def test_a_rate_spreads_the_items(site: Site, ledger_db: LedgerDatabase) -> None:
    """Ten items at four a second pass in pages of four, a second after each whole page."""
    dead(ledger_db, *(f"k{number}" for number in range(10)))
    run = await site.stored(ReplayRequest(Selection(), rate=4.0))
    site.skip_waits()

    await site.replay.apply(run)

    assert site.progress == [4, 8, 10]
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


async def test_a_clock_that_was_set_back_holds_nothing_up(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """Otherwise the next items would wait for as long as the clock was set back."""
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

    await site.replay.apply(run)

    assert (ledger_db.status(task_id), len(site.notes)) == (Status.PENDING, 1)
    assert "until their dead letters are on their topic" in site.notes[0]


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

    await site.replay.apply(run)

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

    report = await site.replay.apply(run)

    assert report.unsent
    assert {ledger_db.status(task_id) for task_id in ids} == {Status.PENDING}
    assert sum(len(outbox.unpack(row.items)) for row in ledger_db.rows(tables.outbox)) == 5


async def test_a_replay_waits_for_items_of_a_parallel_replay(
    site: Site, ledger_db: LedgerDatabase
) -> None:
    """A run ends when none of its items waits, whoever finished the last one."""
    dead(ledger_db, "a")
    run = stored(ledger_db, request())
    assert run is not None
    ours = site.replay._apply_kind

    async def elsewhere(*arguments: object) -> int:
        if len(site.clock.slept) < 3:
            return 0
        return await ours(*arguments)  # type: ignore[arg-type]

    site.replay._apply_kind = elsewhere  # type: ignore[method-assign, assignment]

    await site.replay.apply(run)

    assert site.counts(run) == {ItemState.REPLAYED: 1}
    assert site.clock.slept[:3] == [0.5] * 3


@pytest.mark.parametrize(("rate", "size"), [(0.5, 1), (1.0, 1), (3.7, 3), (10_000.0, 500)])
def test_a_page_is_a_seconds_share(rate: float, size: int) -> None:
    """A page has at least one item, and at most a full page."""
    assert share(rate, 500) == size

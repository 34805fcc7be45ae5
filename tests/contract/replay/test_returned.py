"""Dead letters that other people's tools write back: never a second task, never a second letter."""

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

import pytest
from sqlalchemy import Connection

from docllm.agent.inflight.decoder import letter_record
from docllm.agent.ledger import returned_letters
from docllm.agent.ledger.returned_letters import LOGGED_S, ReturnedLetters
from docllm.agent.ports import Partition, Record, RejectedRecord
from docllm.producer.ledger import quarantine
from docllm.producer.ledger.outbox import QUARANTINE, TASK
from docllm.producer.ledger.replay_progress import ItemState, latest
from docllm.producer.limits import CAP
from docllm.producer.ports import Item, Order
from docllm.producer.publishing import record_builder
from docllm.producer.replay import returned, runs
from docllm.producer.replay.returned import ReturnedLetter
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.migrations import ledger_id
from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.record.topics import Topics
from docllm.schemas.task.states import Status
from tests.contract.replay.replays import FakeClock, Site
from tests.contract.support.ledger_dead import dead, killed, set_aside, set_dead
from tests.support.ledger_database import BATCH, GROUP, LedgerDatabase

INBOX = Partition(f"{GROUP}.inbox", "topic-id", 0, 1)
LOG = "docllm.agent.ledger.returned_letters"


def letters_of(ledger_db: LedgerDatabase, *ids: int, kind: int = TASK) -> list[Outgoing]:
    """Return the letters of these dead tasks or records, as the topic has them."""
    fences = [ledger_db.task(number).fence if kind == TASK else 0 for number in ids]
    items = tuple(Item(kind, number, fence) for number, fence in zip(ids, fences, strict=True))
    order = Order(1, GROUP, "dlq", items)
    written = ledger_db.call(record_builder.records_of, Topics(GROUP), order, 0.0)
    return [written[item] for item in order.items]


def came_back(letters: Sequence[Outgoing], offset: int = 0) -> list[RejectedRecord]:
    """Return letters as an agent reads them from the inbox."""
    return [
        letter_record(
            Record(
                partition=INBOX,
                offset=place,
                timestamp_ms=0,
                key=letter.key,
                value=letter.value,
                headers=letter.headers,
            )
        )
        for place, letter in enumerate(letters, offset)
    ]


def box(
    ledger_db: LedgerDatabase, *, redrive: bool = True, clock: FakeClock | None = None
) -> ReturnedLetters:
    return ReturnedLetters(
        transactions=ledger_db.transactions,
        clock=clock or FakeClock(),
        group=GROUP,
        ledger_id=ledger_db.run(ledger_id),
        redrive=redrive,
    )


async def test_a_letter_that_comes_back_replays_its_task_once(ledger_db: LedgerDatabase) -> None:
    """However often a letter comes back, before and after the replay, its task runs once more."""
    first, second, other = dead(ledger_db, "a", "b", "c")
    letters = came_back(letters_of(ledger_db, first, second))
    site = Site(ledger_db)

    assert await box(ledger_db).without_letters(letters * 2) == []
    assert await box(ledger_db).without_letters(letters) == []
    await site.replayer().apply()
    assert await box(ledger_db).without_letters(letters) == []
    await site.replayer().apply()

    assert [ledger_db.status(number) for number in (first, second, other)] == [
        Status.PENDING,
        Status.PENDING,
        Status.DEAD,
    ]
    rows = [ledger_db.task(number) for number in (first, second)]
    assert [(row.fence, row.replays) for row in rows] == [(1, 1)] * 2
    (run,) = ledger_db.rows(tables.replay_run)
    assert (run.actor, run.total, run.replayed) == (returned.ACTOR, 2, 2)
    assert [(row.actor, row.action, row.items) for row in ledger_db.rows(tables.audit)] == [
        ("docllm", "redrive", 2)
    ]
    assert ledger_db.count(tables.task) == 3
    assert ledger_db.count(tables.quarantine) == 0


async def test_letters_one_after_the_other_join_an_open_run(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letters of many batches, read in many pages, make few runs, each of a bounded size."""
    monkeypatch.setattr(returned, "RUN_ITEMS", 4)
    ids = [*dead(ledger_db, "a", "b", "c"), *dead(ledger_db, "a", "b", "c", into="other")]
    letterbox, site = box(ledger_db), Site(ledger_db)

    for letter in came_back(letters_of(ledger_db, *ids)):
        assert await letterbox.without_letters([letter]) == []

    runs = ledger_db.rows(tables.replay_run)
    assert [(run.actor, run.total) for run in runs] == [(returned.ACTOR, 4), (returned.ACTOR, 2)]
    assert ledger_db.count(tables.replay_item) == 6
    replayer = site.replayer()
    await replayer.apply()  # a page of each run
    await replayer.apply()  # their ends
    assert {ledger_db.status(number) for number in ids} == {Status.PENDING}
    assert [run.replayed for run in ledger_db.rows(tables.replay_run)] == [4, 2]
    assert all(run.ended_at is not None for run in ledger_db.rows(tables.replay_run))
    assert [str(run.request.selection) for run in ledger_db.call(latest, GROUP, 9)] == [
        "--limit 2",
        "--limit 4",
    ]


async def test_a_task_that_died_again_joins_no_run_that_had_it(ledger_db: LedgerDatabase) -> None:
    """A run has a task once; if the task dies while its run is open, the next letter opens one."""
    first, second = dead(ledger_db, "a", "b")
    await box(ledger_db).without_letters(came_back(letters_of(ledger_db, first)))
    (run,) = ledger_db.rows(tables.replay_run)
    ledger_db.call(runs.finish, run.id, TASK, {ItemState.REPLAYED: [first]})
    set_dead(ledger_db, first, fence=1)

    await box(ledger_db).without_letters(came_back(letters_of(ledger_db, first, second)))

    assert [run.total for run in ledger_db.rows(tables.replay_run)] == [1, 2]


def test_a_run_that_letters_join_does_not_end_before_them(ledger_db: LedgerDatabase) -> None:
    """The end of a run waits for the row that a letter's transaction has locked."""
    first, second = dead(ledger_db, "a", "b")
    letter = ReturnedLetter(first, 0, None)
    ledger_db.call(returned.redrive, GROUP, [letter])
    (run,) = ledger_db.rows(tables.replay_run)
    ledger_db.call(runs.finish, run.id, TASK, {ItemState.REPLAYED: [first]})

    with ThreadPoolExecutor(1) as pool:

        def joined(connection: Connection) -> Future[bool]:
            returned.redrive(connection, GROUP, [ReturnedLetter(second, 0, None)])
            ending = pool.submit(ledger_db.run, lambda c: runs.end(c, run.id))
            wait([ending], timeout=1.0)  # long enough for an end that waits for nothing
            return ending

        ending = ledger_db.run(joined)
        assert ending.result() is False

    assert [run.ended_at for run in ledger_db.rows(tables.replay_run)] == [None]


async def test_a_letter_of_an_earlier_death_replays_nothing(ledger_db: LedgerDatabase) -> None:
    """A letter tells of one death. It does not replay a task that has died again since."""
    (task_id,) = dead(ledger_db, "a")
    letters = came_back(letters_of(ledger_db, task_id))
    set_dead(ledger_db, task_id, fence=1)

    assert await box(ledger_db).without_letters(letters) == []

    assert ledger_db.count(tables.replay_run) == 0


async def test_a_task_that_is_not_dead_is_left_alone(ledger_db: LedgerDatabase) -> None:
    """A task that succeeded since, or that waits, is left alone."""
    done, waiting = dead(ledger_db, "a", "b")
    letters = came_back(letters_of(ledger_db, done, waiting))
    ledger_db.set(tables.task, done, status=int(Status.SUCCEEDED))
    ledger_db.set(tables.task, waiting, status=int(Status.PENDING))

    assert await box(ledger_db).without_letters(letters) == []

    assert ledger_db.count(tables.replay_run) == 0


async def test_without_the_setting_the_log_has_the_command(
    ledger_db: LedgerDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the setting nothing is written, and the log says how to replay the task."""
    (task_id,) = dead(ledger_db, "it's a")
    letters = came_back(letters_of(ledger_db, task_id))

    with caplog.at_level(logging.WARNING, LOG):
        assert await box(ledger_db, redrive=False).without_letters(letters) == []

    assert ledger_db.status(task_id) is Status.DEAD
    assert ledger_db.count(tables.replay_run) == 0
    (message,) = caplog.messages
    command = f"docllm replay --group {GROUP} --id 'it'\"'\"'s a' --batch {BATCH};"
    assert f"to replay it, run: {command}" in message
    assert "redrive = true in [inbox]" in message


async def test_a_task_that_reached_the_cap_stays_dead(
    ledger_db: LedgerDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """A tool that writes every letter back at once cannot replay a task for ever."""
    capped, closed = dead(ledger_db, "a") + dead(ledger_db, "b", into="closed")
    set_dead(ledger_db, capped, replays=CAP)
    letters = came_back(letters_of(ledger_db, capped, closed))
    ledger_db.cancel("closed")

    with caplog.at_level(logging.WARNING, LOG):
        assert await box(ledger_db).without_letters(letters) == []

    assert ledger_db.count(tables.replay_run) == 0
    first, second = caplog.messages
    assert f"replayed {CAP} times" in first
    assert f"--cap {CAP + 1}" in first
    assert "its batch is cancelled" in second


async def test_a_forged_letter_is_foreign(ledger_db: LedgerDatabase) -> None:
    """A letter with another value, task, ledger or group is none of ours; so is a damaged one."""
    (task_id,) = dead(ledger_db, "a")
    (letter,) = came_back(letters_of(ledger_db, task_id))

    def changed(name: str, value: bytes) -> RejectedRecord:
        return replace(
            letter, headers=[(key, value if key == name else old) for key, old in letter.headers]
        )

    foreign = [
        replace(letter, value=b"other"),
        changed("docllm-task", b"%d" % (task_id + 1)),
        changed("docllm-task", b"seven"),
        changed("docllm-ledger", b"f" * 32),
        changed("docllm-group", b"other"),
        replace(letter, headers=[*letter.headers, *letter.headers]),
    ]

    assert await box(ledger_db).without_letters(foreign) == foreign

    assert ledger_db.count(tables.replay_run) == 0
    assert ledger_db.status(task_id) is Status.DEAD


async def test_a_line_that_comes_back_without_headers_replays_its_task_once(
    ledger_db: LedgerDatabase,
) -> None:
    """A line names no death, but after the replay it is still that of its task."""
    first, second, living = [*dead(ledger_db, "a", "b"), *ledger_db.load("c")]
    digests = [ledger_db.task(number).digest for number in (first, second, living)]
    letterbox, site = box(ledger_db), Site(ledger_db)

    assert sorted(await letterbox.take_lines(digests[1:], INBOX.topic)) == [digests[1]]
    assert list(await letterbox.take_lines(digests[1:], INBOX.topic)) == [digests[1]]
    await site.replayer().apply()
    assert list(await letterbox.take_lines(digests[1:], INBOX.topic)) == [digests[1]]
    await site.replayer().apply()

    assert ledger_db.status(first) is Status.DEAD
    assert (ledger_db.status(second), ledger_db.task(second).replays) == (Status.PENDING, 1)
    assert [run.total for run in ledger_db.rows(tables.replay_run)] == [1]


async def test_without_the_setting_a_line_that_comes_back_makes_no_second_task(
    ledger_db: LedgerDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says how to replay its task, and how to run the line as a new one."""
    (task_id,) = dead(ledger_db, "a")
    digest = ledger_db.task(task_id).digest

    with caplog.at_level(logging.WARNING, LOG):
        taken = await box(ledger_db, redrive=False).take_lines([digest], INBOX.topic)

    assert list(taken) == [digest]
    assert ledger_db.count(tables.replay_run) == 0
    (message,) = caplog.messages
    assert message == (
        f"the line of task a, batch {BATCH}, came back to {INBOX.topic}: its task stays dead; "
        f"to replay it, run: docllm replay --group {GROUP} --id a --batch {BATCH}; "
        "to have such letters replayed, set redrive = true in [inbox]; "
        "to run the line as a new task, name a batch in the header docllm-batch"
    )


async def test_of_equal_lines_that_died_the_newest_counts(ledger_db: LedgerDatabase) -> None:
    """A line that dies in each night's batch has one row, whatever the order of the deaths."""
    older, newer = ledger_db.load("a", into="monday"), ledger_db.load("a", into="tuesday")
    for task_id in [*newer, *older]:
        killed(ledger_db, task_id)
    digest = ledger_db.task(*older).digest
    assert digest == ledger_db.task(*newer).digest

    assert list(await box(ledger_db).take_lines([digest], INBOX.topic)) == [digest]

    assert [(row.group_name, row.task_id) for row in ledger_db.rows(tables.dead_line)] == [
        (GROUP, *newer)
    ]
    assert [row.item_id for row in ledger_db.rows(tables.replay_item)] == newer


async def test_a_line_of_another_groups_task_is_foreign(ledger_db: LedgerDatabase) -> None:
    """Groups know nothing of each other's lines."""
    (task_id,) = dead(ledger_db, "a")
    other = ReturnedLetters(
        transactions=ledger_db.transactions,
        clock=FakeClock(),
        group="other",
        ledger_id=ledger_db.run(ledger_id),
        redrive=True,
    )

    assert not await other.take_lines([ledger_db.task(task_id).digest], "other.inbox")

    assert ledger_db.count(tables.replay_run) == 0


async def test_a_letter_without_its_value_replays_its_task(ledger_db: LedgerDatabase) -> None:
    """A letter that was too large for its topic only points to the value, and names its task."""
    (task_id,) = dead(ledger_db, "a")
    (letter,) = letters_of(ledger_db, task_id)
    pointer = record_builder.pointer(letter)

    assert await box(ledger_db).without_letters(came_back([pointer])) == []
    await Site(ledger_db).replayer().apply()

    assert ledger_db.status(task_id) is Status.PENDING


async def test_only_a_few_letters_are_logged_in_a_minute(
    ledger_db: LedgerDatabase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that writes back thousands does not fill the log."""
    monkeypatch.setattr(returned_letters, "LOGGED", 3)
    ids = dead(ledger_db, *(f"t{number}" for number in range(6)))
    letters, clock = came_back(letters_of(ledger_db, *ids)), FakeClock()
    letterbox = box(ledger_db, redrive=False, clock=clock)

    with caplog.at_level(logging.WARNING, LOG):
        await letterbox.without_letters(letters)
        await letterbox.without_letters(letters)
        first = len(caplog.messages)
        await clock.sleep(LOGGED_S)
        await letterbox.without_letters(letters[:1])

    assert (first, len(caplog.messages)) == (4, 5)
    assert "not logged" in caplog.messages[3]


def test_the_letter_of_a_quarantined_record_is_only_counted(ledger_db: LedgerDatabase) -> None:
    """A quarantined record's letter that comes back unchanged gets no row and no letter."""
    (number,) = set_aside(ledger_db, b"garbage")
    (letter,) = letters_of(ledger_db, number, kind=QUARANTINE)

    def again(value: bytes | None, offset: int) -> list[Order]:
        record = RejectedRecord(
            topic_id="topic-id",
            topic=INBOX.topic,
            partition=1,
            offset=offset,
            key=letter.key,
            value=value,
            headers=letter.headers,
            reason="line is no JSON",
        )
        return ledger_db.call(quarantine.keep, GROUP, [record])

    assert again(letter.value, 0) == []
    assert [row.seen for row in ledger_db.rows(tables.quarantine)] == [2]
    assert [order.destination for order in again(b"mended badly", 1)] == ["dlq"]
    assert ledger_db.count(tables.quarantine) == 2

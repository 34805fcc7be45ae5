"""Dead letters that other people's tools write back: never a second task, never a second letter."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.inflight.decoder import letter_record
from agent.ledger import returned_letters
from agent.ledger.returned_letters import LOGGED_S, ReturnedLetters
from agent.ports import Partition, Record, RejectedRecord
from producer.ledger import quarantine
from producer.ledger.outbox import QUARANTINE, TASK
from producer.ledger.replay_runs import CAP
from producer.ports import Order
from producer.relay import record_builder
from producer.replay import returned
from schemas.ledger import tables
from schemas.ledger.migrations import ledger_id
from schemas.task.envelope import Outgoing
from schemas.task.states import Status
from schemas.task.topics import Topics
from tests.contract.ledger_dead import dead, set_aside, set_dead
from tests.contract.ledger_parts import BATCH, GROUP, LedgerDatabase
from tests.contract.ledger_replays import FakeClock, Site

INBOX = Partition(f"{GROUP}.inbox", "topic-id", 0, 1)
LOG = "agent.ledger.returned_letters"


def letters_of(ledger_db: LedgerDatabase, *ids: int, kind: int = TASK) -> list[Outgoing]:
    """Return the letters of these dead tasks or records, as the topic has them."""
    fences = [ledger_db.task(number).fence if kind == TASK else 0 for number in ids]
    order = Order(1, GROUP, "dlq", [(kind, *item) for item in zip(ids, fences, strict=True)])
    written = ledger_db.run(lambda c: record_builder.write(c, Topics(GROUP), order, 0.0))
    return [written[item] for item in order.items]


def came_back(letters: Sequence[Outgoing], offset: int = 0) -> list[RejectedRecord]:
    """Return letters as an agent reads them from the inbox."""
    return [
        letter_record(Record(INBOX, place, 0, letter.key, letter.value, letter.headers))
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

    assert await box(ledger_db).take(letters * 2) == []
    assert await box(ledger_db).take(letters) == []
    await site.replayer().apply()
    assert await box(ledger_db).take(letters) == []
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


async def test_a_letter_of_an_earlier_death_replays_nothing(ledger_db: LedgerDatabase) -> None:
    """A letter tells of one death. It does not replay a task that has died again since."""
    (task_id,) = dead(ledger_db, "a")
    letters = came_back(letters_of(ledger_db, task_id))
    set_dead(ledger_db, task_id, fence=1)

    assert await box(ledger_db).take(letters) == []

    assert ledger_db.count(tables.replay_run) == 0


async def test_a_task_that_is_not_dead_is_left_alone(ledger_db: LedgerDatabase) -> None:
    """A task that succeeded since, or that waits, is left alone."""
    done, waiting = dead(ledger_db, "a", "b")
    letters = came_back(letters_of(ledger_db, done, waiting))
    ledger_db.set(tables.task, done, status=int(Status.SUCCEEDED))
    ledger_db.set(tables.task, waiting, status=int(Status.PENDING))

    assert await box(ledger_db).take(letters) == []

    assert ledger_db.count(tables.replay_run) == 0


async def test_without_the_setting_the_log_has_the_command(
    ledger_db: LedgerDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the setting nothing is written, and the log says how to replay the task."""
    (task_id,) = dead(ledger_db, "it's a")
    letters = came_back(letters_of(ledger_db, task_id))

    with caplog.at_level(logging.WARNING, LOG):
        assert await box(ledger_db, redrive=False).take(letters) == []

    assert ledger_db.status(task_id) is Status.DEAD
    assert ledger_db.count(tables.replay_run) == 0
    (message,) = caplog.messages
    command = f"python -m producer replay --group {GROUP} --id 'it'\"'\"'s a' --batch {BATCH};"
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
        assert await box(ledger_db).take(letters) == []

    assert ledger_db.count(tables.replay_run) == 0
    first, second = caplog.messages
    assert f"replayed {CAP} times" in first
    assert f"--cap {CAP + 1}" in first
    assert "its batch is cancelled" in second


async def test_a_forged_letter_is_a_stranger(ledger_db: LedgerDatabase) -> None:
    """A letter with another value, task, ledger or group is none of ours; so is a damaged one."""
    (task_id,) = dead(ledger_db, "a")
    (letter,) = came_back(letters_of(ledger_db, task_id))

    def changed(name: str, value: bytes) -> RejectedRecord:
        return replace(
            letter, headers=[(key, value if key == name else old) for key, old in letter.headers]
        )

    strangers = [
        replace(letter, value=b"other"),
        changed("docllm-task", b"%d" % (task_id + 1)),
        changed("docllm-task", b"seven"),
        changed("docllm-ledger", b"f" * 32),
        changed("docllm-group", b"other"),
        replace(letter, headers=[*letter.headers, *letter.headers]),
    ]

    assert await box(ledger_db).take(strangers) == strangers

    assert ledger_db.count(tables.replay_run) == 0
    assert ledger_db.status(task_id) is Status.DEAD


async def test_a_letter_without_its_value_replays_its_task(ledger_db: LedgerDatabase) -> None:
    """A letter that was too large for its topic only points to the value, and names its task."""
    (task_id,) = dead(ledger_db, "a")
    (letter,) = letters_of(ledger_db, task_id)
    pointer = record_builder.pointer(letter)

    assert await box(ledger_db).take(came_back([pointer])) == []
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
        await letterbox.take(letters)
        await letterbox.take(letters)
        first = len(caplog.messages)
        await clock.sleep(LOGGED_S)
        await letterbox.take(letters[:1])

    assert (first, len(caplog.messages)) == (4, 5)
    assert "not logged" in caplog.messages[3]


def test_the_letter_of_a_quarantined_record_is_only_counted(ledger_db: LedgerDatabase) -> None:
    """A quarantined record's letter that comes back unchanged gets no row and no letter."""
    (number,) = set_aside(ledger_db, b"garbage")
    (letter,) = letters_of(ledger_db, number, kind=QUARANTINE)

    def again(value: bytes | None, offset: int) -> list[Order]:
        record = RejectedRecord(
            "topic-id", INBOX.topic, 1, offset, letter.key, value, letter.headers, "line is no JSON"
        )
        return ledger_db.run(lambda c: quarantine.keep(c, GROUP, [record]))

    assert again(letter.value, 0) == []
    assert [row.seen for row in ledger_db.rows(tables.quarantine)] == [2]
    assert [order.destination for order in again(b"mended badly", 1)] == ["dlq"]
    assert ledger_db.count(tables.quarantine) == 2

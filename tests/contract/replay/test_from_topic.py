"""Dead letters are loaded back into a ledger, into the batches that they name."""

from collections.abc import AsyncGenerator, Sequence

from docllm.producer.ledger import quarantine, store
from docllm.producer.ports import Incoming, Order
from docllm.producer.publishing import record_builder
from docllm.producer.publishing.relay import Relay
from docllm.producer.replay import from_topic
from docllm.producer.replay.from_topic import FromTopic, LoadedLetters, TopicSurvey
from docllm.schemas.ledger import tables
from docllm.schemas.task.failures import Disposition
from docllm.schemas.task.record.envelope import Publication, RawHeaders, encode
from docllm.schemas.task.record.rejected_record import RejectedRecord
from docllm.schemas.task.record.topics import Topics
from tests.contract.replay.replays import FakeClock, FakePublisher
from tests.support.ledger_database import GROUP, LedgerDatabase

TOPIC = f"{GROUP}.dlq"
LINE, OTHER = b'{"id":"a","prompt":"hello"}', b'{"id":"b","prompt":"hello"}'
REJECTED = "rejected"


class Shelf:
    """A topic that holds these dead letters."""

    def __init__(self, held: Sequence[Incoming]) -> None:
        self._held = held

    async def read(self, topic: str) -> AsyncGenerator[Sequence[Incoming], None]:
        yield self._held


def letters_of(ledger_db: LedgerDatabase, *headers: RawHeaders) -> list[Incoming]:
    """Return the dead letters of quarantined records with these headers; forget the ledger."""
    records = [
        RejectedRecord(
            topic_id="id",
            topic=f"{GROUP}.inbox",
            partition=0,
            offset=place,
            key=None,
            value=LINE,
            headers=each,
            reason="why",
            disposition=Disposition.REJECTED,
        )
        for place, each in enumerate(headers)
    ]
    orders = ledger_db.call(quarantine.keep, GROUP, records)
    items = tuple(item for order in orders for item in order.items)
    order = Order(1, GROUP, "dlq", items)
    written = ledger_db.call(record_builder.records_of, Topics(GROUP), order, 0.0).values()
    ledger_db.empty()
    return [
        Incoming(
            partition=0, offset=place, key=record.key, value=record.value, headers=record.headers
        )
        for place, record in enumerate(written)
    ]


async def loaded(
    ledger_db: LedgerDatabase, held: Sequence[Incoming], *dispositions: str, dry: bool = False
) -> LoadedLetters:
    """Load these dead letters; a dry run only says what would be loaded."""
    shelf = Shelf(held)
    relay = Relay(
        transactions=ledger_db.transactions,
        publisher=FakePublisher(),
        topics=Topics(GROUP),
        clock=FakeClock(),
    )
    loader = FromTopic(
        transactions=ledger_db.transactions,
        reader=shelf,
        relay=None if dry else relay,
        group=GROUP,
        max_attempts_of=lambda _: 5,
        limit_of=lambda _: 60.0,
        progress=lambda _: None,
        actor="ann",
    )
    return await loader.load(
        TOPIC, await from_topic.survey_topic(shelf, TOPIC, "another ledger", dispositions)
    )


def of_task(
    place: int,
    value: bytes | None = LINE,
    *,
    batch: str = "b",
    fence: int = 0,
    disposition: str = "permanent",
) -> Incoming:
    """Return a dead letter of task 7 of a lost ledger."""
    headers = encode(Publication(ledger="l" * 32, group=GROUP, batch=batch, task_id=7, fence=fence))
    pointer = [("docllm-pointer", b"3 MiB in the ledger")] if value is None else []
    return Incoming(
        partition=0,
        offset=place,
        key=b"key",
        value=value,
        headers=[*headers, *pointer, ("docllm-disposition", disposition.encode())],
    )


async def surveyed(held: Sequence[Incoming], *dispositions: str) -> TopicSurvey:
    """Return the survey of these dead letters."""
    return await from_topic.survey_topic(Shelf(held), TOPIC, "another ledger", dispositions)


def batches(ledger_db: LedgerDatabase) -> list[str]:
    """Return the batch of each task."""
    names = {row.id: row.name for row in ledger_db.rows(tables.batch)}
    return [names[row.batch_id] for row in ledger_db.rows(tables.task)]


async def test_a_quarantined_record_comes_back_to_its_batch(ledger_db: LedgerDatabase) -> None:
    """The record returns to the batch that it named, or else to the group's own batch."""
    held = letters_of(ledger_db, [("docllm-batch", b"q  1")], [])

    assert (await loaded(ledger_db, held, REJECTED)).new == 2

    assert sorted(batches(ledger_db)) == [f"{GROUP}-direct", "q  1"]


async def test_a_record_of_a_closed_batch_is_refused(ledger_db: LedgerDatabase) -> None:
    """A record of a cancelled batch is refused, and so is one of a batch that `load` made.

    A bug once made it a task of the group's own batch, which ran.
    """
    held = letters_of(ledger_db, [("docllm-batch", b"closed")], [("docllm-batch", b"loaded")])
    ledger_db.batch("closed", origin=store.Origin.INBOX)
    ledger_db.cancel("closed")
    ledger_db.batch("loaded")

    summary = await loaded(ledger_db, held, REJECTED)

    assert (summary.new, batches(ledger_db)) == (0, [])
    assert "batch 'closed' was cancelled" in summary.refused[0]
    assert (
        "batch 'loaded' was made by a load and takes no record of the inbox" in summary.refused[1]
    )


async def test_a_record_whose_batch_cannot_be_read_is_refused(ledger_db: LedgerDatabase) -> None:
    """Nobody knows which batch it belongs to."""
    held = letters_of(ledger_db, [("docllm-unreadable", b"")], [("docllm-batch", b"a\nb")])

    assert len((await loaded(ledger_db, held, REJECTED)).refused) == 2
    assert batches(ledger_db) == []


async def test_a_line_that_asks_for_more_time_than_its_type_has_is_loaded(
    ledger_db: LedgerDatabase,
) -> None:
    """It was accepted once. Agents give it the time of its type."""
    lines = [b'{"id":"a","prompt":"p","time_limit_s":%d}' % seconds for seconds in (60, 61)]

    done = await loaded(
        ledger_db, [of_task(0, lines[0], batch="b"), of_task(1, lines[1], batch="c")]
    )

    assert (done.new, done.over_limit, done.refused) == (2, 1, [])


async def test_a_dry_run_reports_the_same_as_the_run(ledger_db: LedgerDatabase) -> None:
    """A dry run's report equals the run's, also for another group's or a cancelled batch.

    A dry run writes nothing.
    """
    held = letters_of(
        ledger_db,
        [("docllm-batch", b"theirs")],
        [("docllm-batch", b"closed")],
        [("docllm-batch", b"ours")],
    )
    ledger_db.batch("theirs", group="other")
    ledger_db.batch("closed", origin=store.Origin.INBOX)
    ledger_db.cancel("closed")

    dry = await loaded(ledger_db, held, REJECTED, dry=True)

    assert (batches(ledger_db), [row.action for row in ledger_db.rows(tables.audit)]) == (
        [],
        ["cancel"],
    )
    assert dry == await loaded(ledger_db, held, REJECTED)
    assert (dry.new, len(dry.refused)) == (1, 2)


async def test_loading_dead_letters_back_is_audited(ledger_db: LedgerDatabase) -> None:
    """The audit row has the number of dead letters and their topic, for each load."""
    held = letters_of(ledger_db, [], [])

    await loaded(ledger_db, held, REJECTED)

    ((actor, action, detail),) = [
        (row.actor, row.action, row.detail) for row in ledger_db.rows(tables.audit)
    ]
    assert (actor, action, detail) == (
        "ann",
        "from-topic",
        "letters of 2 tasks or records in group.dlq, into group group",
    )


async def test_quarantined_records_are_left_unless_they_are_asked_for(
    ledger_db: LedgerDatabase,
) -> None:
    """A quarantined copy of a dead task would run beside its original.

    It would run in the group's own batch, because a copy is a task, too.
    """
    held = [*letters_of(ledger_db, []), of_task(1)]

    survey = await surveyed(held)
    first = await loaded(ledger_db, held, dry=True)

    assert (len(survey.positions), [name.kind for name in survey.left], survey.letters) == (
        1,
        ["docllm-quarantine"],
        2,
    )
    assert first == await loaded(ledger_db, held)
    assert (first.new, batches(ledger_db)) == (1, ["b"])

    assert (await loaded(ledger_db, held, "undecodable", REJECTED)).new == 1
    assert sorted(batches(ledger_db)) == ["b", f"{GROUP}-direct"]


async def test_a_disposition_takes_its_letters_alone(ledger_db: LedgerDatabase) -> None:
    """A disposition selects dead letters of tasks and of records, as it does for a replay."""
    held = [
        of_task(0),
        of_task(1, OTHER, disposition="exhausted"),
        of_task(2, batch="c", disposition=REJECTED),
    ]

    survey = await surveyed(held, "exhausted", REJECTED)

    assert (len(survey.positions), len(survey.left)) == (2, 1)
    assert (await loaded(ledger_db, held, "exhausted", REJECTED)).new == 2
    assert sorted(batches(ledger_db)) == ["b", "c"]


async def test_two_tasks_with_one_number_are_distinguished(ledger_db: LedgerDatabase) -> None:
    """A restored backup gives numbers out again.

    A bug once dropped the second task as a dead letter of the first.
    """
    held = [of_task(0, fence=2), of_task(1, OTHER, fence=1), of_task(2, batch="c")]

    assert (
        await loaded(ledger_db, held, dry=True)
        == await loaded(ledger_db, held)
        == LoadedLetters(new=3)
    )
    assert sorted(batches(ledger_db)) == ["b", "b", "c"]


async def test_several_letters_of_a_task_are_one(ledger_db: LedgerDatabase) -> None:
    """The first one counts; a pointer counts only if no other letter has the value."""
    held = [
        of_task(0, None, fence=3),
        of_task(1, fence=1),
        of_task(2, fence=2),
        of_task(3, None, batch="c"),
    ]

    summary = await loaded(ledger_db, held)

    assert (
        len((await surveyed(held)).positions),
        summary.new,
        summary.known,
        batches(ledger_db),
    ) == (
        2,
        1,
        0,
        ["b"],
    )
    (refused,) = summary.refused
    assert refused.startswith("letter 0/3, task 7 of batch c: value is not in the letter")


async def test_a_dry_run_compares_letters_with_each_other(ledger_db: LedgerDatabase) -> None:
    """An id with two contents is refused the second time, an equal one is known."""
    clash = b'{"id":"a","prompt":"hello again"}'
    twin = Incoming(
        partition=0,
        offset=2,
        key=b"key",
        value=LINE,
        headers=encode(Publication(ledger="m" * 32, group=GROUP, batch="b", task_id=9, fence=0)),
    )
    held = [of_task(0), of_task(1, clash), twin]

    dry = await loaded(ledger_db, held, dry=True)

    assert dry == await loaded(ledger_db, held)
    assert (dry.new, dry.known, len(dry.refused)) == (1, 1, 1)


async def test_a_batch_of_another_group_is_reported_with_advice(
    ledger_db: LedgerDatabase,
) -> None:
    """The dead letter names the batch, so there is no `--batch` to choose another one."""
    ledger_db.call(store.open_batch, "b", "other")

    for dry in (True, False):
        (refusal,) = (await loaded(ledger_db, [of_task(0)], dry=dry)).refused

        assert (
            "'b' belongs to another group" in refusal,
            "--group" in refusal,
            "--batch" in refusal,
        ) == (
            True,
            True,
            False,
        )

"""Dead letters that are loaded back into a ledger: into the batches that they name."""

from collections.abc import AsyncIterator, Sequence

from producer import from_topic, letters, quarantine
from producer.from_topic import FromTopic, Loaded
from producer.ports import Incoming, Order
from producer.quarantine import Suspect
from producer.relay import Relay
from schemas import tables
from schemas.envelope import RawHeaders
from schemas.lanes import InlineLane
from schemas.topics import Topics
from tests.contract.ledger_parts import GROUP, Books
from tests.contract.test_replay import FakeClock, FakePublisher

TOPIC = f"{GROUP}.dlq"
LINE = b'{"id":"a","prompt":"hello"}'


class Shelf:
    """A topic that holds these letters."""

    def __init__(self, held: Sequence[Incoming]) -> None:
        self._held = held

    async def read(self, _topic: str) -> AsyncIterator[Sequence[Incoming]]:
        yield self._held


def letters_of(books: Books, *headers: RawHeaders) -> list[Incoming]:
    """Return the letters of records with these headers that are set aside, and forget the ledger."""
    suspects = [Suspect("id", f"{GROUP}.inbox", 0, place, None, LINE, each, "why", "rejected") for place, each in enumerate(headers)]
    orders = books.run(lambda c: quarantine.keep(c, GROUP, suspects))
    items = tuple(item for order in orders for item in order.items)
    order = Order(1, GROUP, "dlq", items)
    records = books.run(lambda c: letters.write(c, Topics(GROUP), order, 0.0)).values()
    books.empty()
    return [Incoming(0, place, record.key, record.value, record.headers) for place, record in enumerate(records)]


async def loaded(books: Books, held: Sequence[Incoming], *, dry: bool = False) -> Loaded:
    """Load these letters; a dry run only says what would come of it."""
    lane, shelf = InlineLane(), Shelf(held)
    relay = Relay(database=books.database, lane=lane, publisher=FakePublisher(), topics=Topics(GROUP), clock=FakeClock())
    loader = FromTopic(
        database=books.database,
        lane=lane,
        reader=shelf,
        relay=None if dry else relay,
        group=GROUP,
        max_attempts_of=lambda _: 5,
        progress=lambda _: None,
        actor="ann",
    )
    return await loader.load(TOPIC, await from_topic.survey(shelf, TOPIC, "another ledger"))


def batches(books: Books) -> list[str]:
    """Return the batch of each task."""
    names = {row.id: row.name for row in books.rows(tables.batch)}
    return [names[row.batch_id] for row in books.rows(tables.task)]


async def test_a_quarantined_record_comes_back_to_its_batch(books: Books) -> None:
    """To the one that it named, or else to the group's own."""
    held = letters_of(books, [("docllm-batch", b"q  1")], [])

    assert (await loaded(books, held)).new == 2

    assert sorted(batches(books)) == [f"{GROUP}-direct", "q  1"]


async def test_a_record_of_a_cancelled_batch_is_refused(books: Books) -> None:
    """As any letter of such a batch is; it became a task of the group's own batch, and ran."""
    held = letters_of(books, [("docllm-batch", b"batch")])
    books.cancel()

    found = await loaded(books, held)

    assert (found.new, batches(books)) == (0, [])
    assert "batch 'batch' was cancelled" in found.refused[0]


async def test_a_record_whose_batch_cannot_be_read_is_refused(books: Books) -> None:
    """Nobody knows whose it is."""
    held = letters_of(books, [("docllm-unreadable", b"")], [("docllm-batch", b"a\nb")])

    assert len((await loaded(books, held)).refused) == 2
    assert batches(books) == []


async def test_a_dry_run_says_what_the_run_does(books: Books) -> None:
    """Also of a batch that another group has, or that was cancelled; and it writes nothing."""
    held = letters_of(books, [("docllm-batch", b"theirs")], [("docllm-batch", b"closed")], [("docllm-batch", b"ours")])
    books.batch("theirs", group="other")
    books.batch("closed")
    books.cancel("closed")

    dry = await loaded(books, held, dry=True)

    assert (batches(books), [row.action for row in books.rows(tables.audit)]) == ([], ["cancel"])
    assert dry == await loaded(books, held)
    assert (dry.new, len(dry.refused)) == (1, 2)


async def test_who_loads_letters_back_is_in_the_audit(books: Books) -> None:
    """With how many and from where, each time."""
    held = letters_of(books, [], [])

    await loaded(books, held)

    ((actor, action, detail),) = [(row.actor, row.action, row.detail) for row in books.rows(tables.audit)]
    assert (actor, action, detail) == ("ann", "from-topic", "letters of 2 tasks or records in group.dlq, into group group")

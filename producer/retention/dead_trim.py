"""Finds how far the topic of dead letters may be deleted.

Kafka deletes from the beginning of a partition only. So each partition goes up to the first letter
that is still needed, whatever comes after it.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from docllm.producer.ledger.dead_letters import spent_letters
from docllm.producer.ledger.dead_letters.spent_letters import TopicLetter
from docllm.producer.ports import Incoming, TopicReader
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import NotOursError, decode

_MAX_DIGITS = 18


@dataclass(slots=True)
class TrimPlan:
    """How far each partition may be deleted.

    `ends` has the first offset that stays. `letters` is how many records would be deleted. `needed`
    has the first letter that stays, for each partition that has one, in words.
    """

    ends: dict[int, int] = field(default_factory=dict)
    needed: dict[int, str] = field(default_factory=dict)
    letters: int = 0


async def plan_trim(
    transactions: Transactions,
    reader: TopicReader,
    *,
    group: str,
    ledger_id: str,
    topic: str,
    partitions: int,
) -> TrimPlan:
    """Read each partition up to its first needed letter; return how far each may be deleted."""
    plan = TrimPlan()
    async with aclosing(reader.read(topic)) as pages:
        async for page in pages:
            records = [record for record in page if record.partition not in plan.needed]
            await _take(plan, transactions, group, ledger_id, records)
            if len(plan.needed) == partitions:
                break
    return plan


async def _take(
    plan: TrimPlan,
    transactions: Transactions,
    group: str,
    ledger_id: str,
    records: Sequence[Incoming],
) -> None:
    letters: dict[tuple[int, int], TopicLetter] = {}
    numbers: dict[tuple[int, int], int] = {}
    for record in records:
        place = record.partition, record.offset
        if letter := _letter(record, group, ledger_id):
            letters[place] = letter
        elif number := _number(record, ledger_id):
            numbers[place] = number
    read = transactions.read
    spent = await read(spent_letters.spent, group, set(letters.values())) if letters else ()
    done = await read(spent_letters.spent_records, group, numbers.values()) if numbers else ()
    for record in records:
        place = record.partition, record.offset
        if record.partition in plan.needed:
            continue
        if _may_go(letters.get(place), spent, numbers.get(place), done):
            plan.ends[record.partition] = record.offset + 1
            plan.letters += 1
        else:
            plan.needed[record.partition] = _words(letters.get(place), numbers.get(place), record)


def _may_go(
    letter: TopicLetter | None,
    spent: Collection[TopicLetter],
    number: int | None,
    done: Collection[int],
) -> bool:
    return letter in spent if letter is not None else number in done


def _letter(record: Incoming, group: str, ledger_id: str) -> TopicLetter | None:
    """Return the letter of a task of this ledger; None for all else."""
    try:
        named = decode(record.headers)
    except NotOursError:
        return None
    if (named.ledger, named.group) != (ledger_id, group):
        return None
    return TopicLetter(named.batch, named.task_id, named.fence)


def _number(record: Incoming, ledger_id: str) -> int | None:
    """Return the number of the quarantined record whose letter this is; None for all else."""
    headers: Mapping[str, bytes | None] = dict(record.headers)
    number = headers.get(header_names.QUARANTINE) or b""
    is_own = headers.get(header_names.LEDGER) == ledger_id.encode()
    return int(number) if is_own and number.isdigit() and len(number) <= _MAX_DIGITS else None


def _words(letter: TopicLetter | None, number: int | None, record: Incoming) -> str:
    if letter is not None:
        return f"task {letter.task_id} of batch {letter.batch} at offset {record.offset}"
    if number is not None:
        return f"quarantine:{number} at offset {record.offset}"
    return f"a record that is no letter of this ledger at offset {record.offset}"

"""Loads dead letters back from their topic, for a ledger that was lost.

Each task is loaded once, into the batch that its dead letter names. The topic is read twice: first
for the positions of the dead letters, some hundred bytes each, then for their bytes.

Tasks that are in the ledger already are recognized, so a load may be repeated at any time.
Quarantined records were never tasks, and may be copies of tasks, so their dead letters are left
unless somebody asks for them.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from docllm.producer.ledger import audit, store
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.loading import foreign_records
from docllm.producer.ports import Incoming, Order, TopicReader
from docllm.producer.publishing.relay import Relay
from docllm.schemas.errors import ConfigError, UnsafeStateError
from docllm.schemas.ledger.database import Connection
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.settings.claim_time import over_limit
from docllm.schemas.task.line.parsing import LineError
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import digest

PageStart = tuple[int, int]  # partition, offset

# Dead letters in one transaction.
CHUNK = 500
SQLITE_CHUNK = 200
_OWN_PREFIXES = (
    header_names.OWN_PREFIX,
    header_names.SPRING_PREFIX,
    header_names.KIP_PREFIX,
)
_POINTER = (header_names.POINTER, header_names.VALUE_DIGEST)
_MAX_DIGITS = 18
# Replaces the ledger's error text, which advises to change `--batch`: here the dead letters name
# the batch.
_OTHER_GROUP = (
    "batch {!r} belongs to another group of this ledger; load its letters with that --group"
)


class LetterSubject(NamedTuple):
    """The task or record that a dead letter is about.

    `content` stands for the value; it is empty if the dead letter only points to the value. The
    number alone does not identify a task: a restored backup gives numbers out again, to other
    tasks.
    """

    ledger: str
    kind: str
    number: str
    batch: str
    content: bytes


@dataclass(slots=True)
class TopicSurvey:
    """What a topic holds.

    - `positions`: the position of one dead letter of each task or record.
    - `left`: tasks and records that were not asked for.
    - `letters`: the number of dead letters. `own`: how many of them are of the given ledger.
    """

    positions: dict[LetterSubject, PageStart] = field(default_factory=dict)
    left: set[LetterSubject] = field(default_factory=set)
    letters: int = 0
    own: int = 0


@dataclass(slots=True)
class LoadedLetters:
    """The result of a load. `refused`: dead letters that cannot be loaded, with the reason.

    `over_limit`: the letters whose lines ask for more time than their types have by now.
    """

    new: int = 0
    known: int = 0
    over_limit: int = 0
    refused: list[str] = field(default_factory=list)


async def survey_topic(
    reader: TopicReader, topic: str, ledger_id: str, dispositions: Collection[str]
) -> TopicSurvey:
    """Return what a topic holds now: the dead letters of these dispositions.

    Without dispositions it returns the dead letters of everything but quarantined records.
    """
    survey = TopicSurvey()
    async with aclosing(reader.read(topic)) as pages:
        async for page in pages:
            for letter in page:
                _note(survey, letter, ledger_id, dispositions)
    _drop_pointers(survey)
    survey.left -= survey.positions.keys()
    return survey


def _note(
    survey: TopicSurvey, letter: Incoming, ledger_id: str, dispositions: Collection[str]
) -> None:
    subject, headers = subject_of(letter), dict(letter.headers)
    survey.letters += 1
    survey.own += subject.ledger == ledger_id
    is_wanted = (
        (headers.get(header_names.DISPOSITION) or b"").decode("utf-8", "replace") in dispositions
        if dispositions
        else subject.kind != header_names.QUARANTINE
    )
    if is_wanted:
        survey.positions.setdefault(subject, (letter.partition, letter.offset))
    else:
        survey.left.add(subject)


def _drop_pointers(survey: TopicSurvey) -> None:
    """Forget dead letters that only point to a value that another letter of the task has."""
    if pointers := [subject for subject in survey.positions if not subject.content]:
        with_value = {subject[:4] for subject in survey.positions if subject.content}
        for subject in pointers:
            if subject[:4] in with_value:
                del survey.positions[subject]


def subject_of(letter: Incoming) -> LetterSubject:
    """Return what a dead letter is about; a record without docllm's headers stands for itself."""
    headers = dict(letter.headers)
    ledger, batch = (
        sys.intern((headers.get(name) or b"")[:255].decode("utf-8", "replace"))
        for name in (header_names.LEDGER, header_names.BATCH)
    )
    content = digest(b"", letter.value or b"") if _is_whole(letter) else b""
    for header in (header_names.TASK, header_names.QUARANTINE):
        if number := headers.get(header):
            return LetterSubject(
                ledger, header, number[:_MAX_DIGITS].decode("utf-8", "replace"), batch, content
            )
    return LetterSubject("", "record", f"{letter.partition}/{letter.offset}", batch, content)


def _is_whole(letter: Incoming) -> bool:
    """Return whether a dead letter has its value, and does not only point to it."""
    return letter.value is not None and not any(name in _POINTER for name, _ in letter.headers)


@dataclass(slots=True, kw_only=True, eq=False)
class FromTopic:
    """Loads the dead letters that `survey_topic` found into one ledger."""

    transactions: Transactions
    reader: TopicReader
    relay: Relay | None
    group: str
    max_attempts_of: Callable[[str], int]
    limit_of: Callable[[str], float]
    progress: Callable[[int], None]
    actor: str
    # Digests by batch and key.
    _compared: dict[tuple[str, bytes], bytes] = field(default_factory=dict, init=False)

    async def load(self, topic: str, survey: TopicSurvey) -> LoadedLetters:
        """Load one dead letter of each task; without a relay only say what would be loaded."""
        loaded = LoadedLetters()
        if self.relay is not None:
            await self.transactions.write(self._audit, topic, survey)
        async with aclosing(self.reader.read(topic)) as pages:
            async for page in pages:
                letters = [
                    letter
                    for letter in page
                    if survey.positions.get(subject_of(letter)) == (letter.partition, letter.offset)
                ]
                for chunk in self._chunks(letters):
                    await self._load(chunk, loaded)
                    self.progress(loaded.new + loaded.known)
        return loaded

    def _audit(self, connection: Connection, topic: str, survey: TopicSurvey) -> None:
        """Record in the audit who loads what.

        This happens before the load, so a load that is killed is audited too.
        """
        count = len(survey.positions)
        detail = f"letters of {count} tasks or records in {topic}, into group {self.group}"
        audit.write(
            connection,
            group=self.group,
            actor=self.actor,
            action="from-topic",
            kind=AuditKind.TOPIC,
            target=topic,
            detail=detail,
            items=count,
        )

    def _chunks(self, letters: Sequence[Incoming]) -> Iterator[Sequence[Incoming]]:
        size = SQLITE_CHUNK if self.transactions.database.sqlite else CHUNK
        yield from (letters[start : start + size] for start in range(0, len(letters), size))

    async def _load(self, letters: Sequence[Incoming], loaded: LoadedLetters) -> None:
        by_batch: dict[tuple[str, store.Origin], list[tuple[Incoming, NewTask]]] = {}
        for letter in letters:
            try:
                batch_name, task = self._read(letter, loaded)
                by_batch.setdefault((batch_name, _origin(letter)), []).append((letter, task))
            except LineError as error:
                loaded.refused.append(f"{_where(letter)}: {foreign_records.reason_text(error)}")
        for (batch_name, origin), batch_letters in by_batch.items():
            await self._accept(batch_name, origin, batch_letters, loaded)

    def _read(self, letter: Incoming, loaded: LoadedLetters) -> tuple[str, NewTask]:
        if not _is_whole(letter):
            raise LineError(
                "value",
                "is not in the letter, which only points to it",
                "load the task from where it came from",
            )
        headers = [
            pair
            for pair in letter.headers
            if pair[0] in {header_names.BATCH, header_names.BAD_NAMES}
            or not pair[0].startswith(_OWN_PREFIXES)
        ]
        line = foreign_records.parsed_here(foreign_records.line_of(letter.value))
        batch_name_and_task = foreign_records.task_of(
            letter.key, letter.value, headers, self.group, self.max_attempts_of, line
        )
        asked_s = line.time_limit_s
        # The task was accepted once, so it is not lost: agents give it the time of its type.
        loaded.over_limit += asked_s is not None and bool(
            over_limit(line.type, asked_s, self.limit_of(line.type))
        )
        return batch_name_and_task

    async def _accept(
        self,
        batch_name: str,
        origin: store.Origin,
        batch_letters: Sequence[tuple[Incoming, NewTask]],
        loaded: LoadedLetters,
    ) -> None:
        tasks = [task for _, task in batch_letters]
        take = self._write if self.relay is not None else self._compare
        try:
            accepted = await take(batch_name, origin, tasks)
        except (ConfigError, UnsafeStateError) as error:
            reason = _OTHER_GROUP.format(batch_name) if isinstance(error, ConfigError) else error
            loaded.refused += [f"{_where(letter)}: {reason}" for letter, _ in batch_letters]
            return
        loaded.new += len(accepted.new)
        loaded.known += len(accepted.known)
        loaded.refused += [
            f"{_where(batch_letters[position][0])}: {foreign_records.clash_text(batch_name)}"
            for position in accepted.clashing
        ]
        await self._send(accepted.orders)

    async def _write(
        self, batch_name: str, origin: store.Origin, tasks: Sequence[NewTask]
    ) -> store.Accepted:
        into = await self.transactions.write(store.open_batch, batch_name, self.group, origin)
        first_id = await self.transactions.write(store.take_ids, len(tasks))
        return await self.transactions.write(store.accept, into, tasks, first_id)

    async def _compare(
        self, batch_name: str, origin: store.Origin, tasks: Sequence[NewTask]
    ) -> store.Accepted:
        """Return what `_write` would return, without writing.

        Tasks that are not in the ledger yet and share an id are compared with each other.
        """
        into = await self.transactions.write(store.own_batch, batch_name, self.group, origin)
        accepted = store.Accepted(dict.fromkeys(range(len(tasks)), 0), (), (), ())
        if into is not None:
            accepted = await self.transactions.write(store.matching, into, tasks)
        new, known, clashing = list[int](), [*accepted.known], [*accepted.clashing]
        for position in accepted.new:
            task = tasks[position]
            is_first = (batch_name, task.key) not in self._compared
            is_same = self._compared.setdefault((batch_name, task.key), task.digest) == task.digest
            (new if is_first else known if is_same else clashing).append(position)
        return store.Accepted(dict.fromkeys(new, 0), tuple(known), tuple(clashing), ())

    async def _send(self, orders: Sequence[Order]) -> None:
        crash.reach("from_topic.accepted")
        if self.relay is not None:
            await self.relay.send(orders)


def _origin(letter: Incoming) -> store.Origin:
    """Return the origin of a dead letter's batch; a quarantined record keeps its foreign one."""
    return (
        store.Origin.QUARANTINE
        if subject_of(letter).kind == header_names.QUARANTINE
        else store.Origin.LETTERS
    )


def _where(letter: Incoming) -> str:
    """Return the task and the position of a dead letter, for a person."""
    subject = subject_of(letter)
    subjects = {
        header_names.TASK: f"task {subject.number} of batch {subject.batch}",
        header_names.QUARANTINE: f"quarantine {subject.number}",
    }
    return f"letter {letter.partition}/{letter.offset}, {subjects.get(subject.kind, 'a record')}"

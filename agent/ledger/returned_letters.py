"""Handles dead letters that other tools write back.

Such a letter never creates a second task or a second dead letter. With `[inbox] redrive` it replays
its task; otherwise the log names the command to replay it. A letter without headers is recognized
by its line.
"""

import logging
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from docllm.agent.ports import Clock, RejectedRecord
from docllm.producer.limits import CAP
from docllm.producer.replay import returned
from docllm.producer.replay.returned import LetterStanding, ReturnedLetter, Standing
from docllm.producer.text.printable import shown
from docllm.schemas.codes import Code
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import decode, is_letter
from docllm.schemas.text.untrusted import contained

log = logging.getLogger(__name__)

LOGGED = 10  # letters in each span of LOGGED_S
LOGGED_S = 60.0


@dataclass(slots=True, kw_only=True, eq=False)
class ReturnedLetters:
    """The dead letters that come back to one group."""

    transactions: Transactions
    clock: Clock
    group: str
    ledger_id: str
    redrive: bool
    _logged: int = field(default=0, init=False)
    _logged_since_s: float = field(default=float("-inf"), init=False)

    async def without_letters(self, records: Sequence[RejectedRecord]) -> list[RejectedRecord]:
        """Take the letters of tasks that the ledger has; return the other records."""
        letters = {
            position: letter
            for position, record in enumerate(records)
            if (letter := self._letter(record)) is not None
        }
        if not letters:
            return list(records)
        standings = dict(zip(letters, await self._standings(list(letters.values())), strict=True))
        crash.reach("letters.judged")
        foreign = []
        for position, record in enumerate(records):
            judged = standings.get(position)
            if judged is None or judged.standing is Standing.FOREIGN:
                foreign.append(record)
            elif text := self._text(judged):
                self._log("a dead letter", judged, record.topic, text)
        return foreign

    async def take_lines(self, digests: Collection[bytes], topic: str) -> Collection[bytes]:
        """Take the letters that came back to `topic` without headers; return their digests."""
        letters = await self.transactions.read(returned.of_lines, self.group, digests)
        if not letters:
            return ()
        standings = dict(zip(letters, await self._standings(list(letters.values())), strict=True))
        crash.reach("letters.lines_judged")
        taken = []
        for digest, letter in standings.items():
            if letter.standing is not Standing.FOREIGN:
                taken.append(digest)
                self._log("the line", letter, topic, self._text_of_line(letter))
        return taken

    async def _standings(self, letters: Sequence[ReturnedLetter]) -> list[LetterStanding]:
        if self.redrive:
            return await self.transactions.write(returned.redrive, self.group, letters)
        return await self.transactions.read(returned.standings_of, self.group, letters)

    def _letter(self, record: RejectedRecord) -> ReturnedLetter | None:
        """Return the letter that a record is, None if it is none of this ledger and group."""
        if not is_letter(record.headers):
            return None
        try:
            with contained():
                publication = decode(record.headers)
        except Exception:  # noqa: BLE001 - whatever it is, the quarantine takes it
            return None
        if publication.ledger != self.ledger_id or publication.group != self.group:
            return None
        return ReturnedLetter(publication.task_id, publication.fence, record.value)

    def _text(self, letter: LetterStanding) -> str | None:
        """Return what becomes of a letter and what a person may do; None if nothing is to do."""
        options = f"--group {self.group} --id {shlex.quote(letter.key)}"
        command = f"docllm replay {options} --batch {shlex.quote(letter.batch)}"
        match letter.standing:
            case Standing.DEAD if self.redrive:
                return "its task is replayed"
            case Standing.DEAD:
                return (
                    f"its task stays dead; to replay it, run: {shown(command)}; "
                    "to have such letters replayed, set redrive = true in [inbox]"
                )
            case Standing.CAPPED:
                return (
                    f"its task was replayed {CAP} times and stays dead; to replay it once more, "
                    f"run: {shown(command)} --cap {CAP + 1}"
                )
            case Standing.BATCH_ENDED:
                return "its task stays dead, because its batch is cancelled or archived"
            case _:
                return None

    def _text_of_line(self, letter: LetterStanding) -> str:
        """Return the same text for a bare line, which may have been meant as a new task."""
        text = self._text(letter) or "its task has died before and is not dead now, or is replayed"
        if letter.standing is Standing.DEAD and self.redrive:
            return text
        return (
            f"{text}; to run the line as a new task, name a batch in the header "
            f"{header_names.BATCH}"
        )

    def _log(self, subject: str, letter: LetterStanding, topic: str, text: str) -> None:
        if self._may_log():
            task = f"task {shown(letter.key)}, batch {shown(letter.batch)},"
            log.warning(
                "%s of %s came back to %s: %s",
                subject,
                task,
                topic,
                text,
                extra={"code": Code.LETTERS_RETURNED},
            )

    def _may_log(self) -> bool:
        """Return whether one more letter may be logged: a few in each minute are."""
        now_s = self.clock.now_s()
        if now_s - self._logged_since_s >= LOGGED_S:
            self._logged, self._logged_since_s = 0, now_s
        self._logged += 1
        if self._logged == LOGGED + 1:
            log.warning(
                "more dead letters came back; they are handled alike, and not logged",
                extra={"code": Code.LETTERS_RETURNED},
            )
        return self._logged <= LOGGED

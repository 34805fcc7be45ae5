"""Shows the group's progress and why work waits; it only reads.

On a terminal it draws a bar, elsewhere it logs a line now and then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from docllm.agent.reporting.group_run import GroupRun
from docllm.agent.reporting.latest_report import LatestReport
from docllm.agent.reporting.telemetry import Counts, death_lines
from docllm.agent.reporting.views import DeadExample, Note, View, dead_example, to_line, view_of
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.status import progress
from docllm.producer.ledger.status.progress import Totals, Waiting
from docllm.producer.ledger.status.retries import TiersOf, no_tiers
from docllm.producer.ledger.store import half_loaded_message
from docllm.producer.text.agent_sentences import Sentence, call_text, sentences
from docllm.producer.text.urgency import Urgency
from docllm.schemas.agent_report import AgentReport
from docllm.schemas.codes import Code
from docllm.schemas.ledger.database import DatabaseError
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.text.wording import number_of

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
# Reading the progress takes at most this share of the time.
SHARE = 0.05
# After this long without a change, and then repeatedly, the agent logs why nothing moves.
STILL_S = 30.0
# Between two warnings about the same, and between two logs of deaths.
WARN_S = 60.0
EXAMPLES = 40
# Time limit for reading the final progress from the ledger.
END_S = 10.0


NAMED_AGENTS = 3


def why_still(
    report: AgentReport | None, waiting: Waiting, *, group: str, own: int
) -> tuple[str, bool]:
    """Return why nothing moves, and whether there is another cause than slow calls or a limit.

    `own` is the id of the agent that asks.
    """
    told = sentences(report, group) if report else []
    guards = [
        f"guard of {guard.title}: {guard.reason}; {guard.next_step_text}"
        for guard in waiting.guards
    ]
    calls = list(_calls(report, waiting, own))
    reasons = [*(sentence.text for sentence in told), *guards, *calls, *_pauses(waiting)]
    if not reasons:
        lag = sum(report.lag.values()) if report else 0
        reasons = (
            [f"{number_of(lag, 'record')} to be read"]
            if lag
            else ["tasks wait until their records arrive"]
        )
    has_trouble = bool(guards) or any(sentence.urgency.is_trouble for sentence in told)
    return "; ".join(reasons), has_trouble or not (told or calls or waiting.in_ledger)


def _calls(report: AgentReport | None, waiting: Waiting, own: int) -> Iterator[str]:
    if report is not None and report.running:
        call = report.oldest_call
        oldest = f", the oldest for {call_text(call)}" if call else ""
        noun = "task runs" if report.running == 1 else "tasks run"
        yield f"{report.running:,} {noun} here{oldest}"
    others = {agent: count for agent, count in waiting.running.items() if agent != own}
    if not others:
        return
    names = [waiting.names.get(agent, f"agent {agent}, which is lost") for agent in others]
    rest = f" and {len(names) - NAMED_AGENTS} more" if len(names) > NAMED_AGENTS else ""
    number = sum(others.values())
    noun = "task runs" if number == 1 else "tasks run"
    yield f"{number:,} {noun} elsewhere: {', '.join(names[:NAMED_AGENTS])}{rest}"


def _pauses(waiting: Waiting) -> Iterator[str]:
    yield from _tries(waiting.retrying, waiting.due_s, "another attempt")
    yield from _tries(waiting.snoozed, waiting.snoozed_due_s, "a try after one that is not counted")
    yield from (wait.text for wait in waiting.in_ledger)
    if waiting.orders:
        noun = "order waits" if waiting.orders == 1 else "orders wait"
        yield f"{waiting.orders:,} {noun} to be published"
    yield from map(half_loaded_message, waiting.half_loaded)


def _tries(number: int, due_s: float | None, what: str) -> Iterator[str]:
    if number and due_s is not None:
        when = f"the first is due in {due_s:.0f} s" if due_s else "the first is due"
        noun = "task waits" if number == 1 else "tasks wait"
        yield f"{number:,} {noun} for {what}, {when}"


@dataclass(kw_only=True, eq=False)
class Progress:
    """The progress of one agent's group, and why its work waits.

    `tell` sends totals to the parent of several agents. `first` says that this agent is alone or
    the first of them, so that it speaks for all. `own` returns the id of this agent, and `tiers_of`
    the retry tiers of a type.
    """

    transactions: Transactions
    group: str
    clock: Clock
    counts: Counts
    latest: LatestReport
    own: Callable[[], int]
    tiers_of: TiersOf = no_tiers
    priced: Collection[str] = ()
    tell: Callable[[bytes], None] | None = None
    first: bool = True

    def __post_init__(self) -> None:
        self._run = GroupRun(priced=self.priced)
        self._said_at_s = float("-inf")

    async def begin(self) -> None:
        """Note where the run begins: what is done already is not its work."""
        self._send(await self._read_totals())

    async def run(self) -> None:
        """Show progress until cancelled."""
        duties = [self._warn(), self._log_deaths(), self._log_retries()]
        if self.first:
            duties.append(self._show())
        await asyncio.gather(*duties)

    async def end(self) -> None:
        """Note what became of the run, for the parent."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                self._send(await self._read_totals())

    async def log_stopped(self) -> None:
        """Log how far the run is, and what this agent did, because somebody ends the agent."""
        await self.end()
        dead = self._run.dead_by_class
        self._log_dead(dead, await self._examples() if dead else {})
        if self.counts.adds_to(**self._run.ends):
            log.info("this agent: %s", self.counts.summary())
        if self._run.begun:
            log.info("%s", self._run.summary(self.clock.now_s()))

    async def log_done(self, notes_on: Callable[..., Awaitable[Sequence[Note]]]) -> None:
        """Log what became of a run whose work is done, or let the parent do so.

        `notes_on` returns further warnings, given as `dead_lately` how many tasks died in this run.
        """
        await self.end()
        dead = self._run.dead_by_class
        notes = await notes_on(dead_lately=sum(dead.values()))
        examples = await self._examples() if dead else {}
        if self.tell is not None:
            for sample in examples.values():
                self.tell(to_line(sample))
            for note in notes:
                self.tell(to_line(note))
            return
        self._log_dead(dead, examples, *notes)
        log.info("%s", self._run.summary(self.clock.now_s()))

    def _log_dead(
        self, dead: Mapping[str, int], examples: Mapping[str, DeadExample], *notes: Note
    ) -> None:
        texts = {name: example.text for name, example in examples.items()}
        for line in death_lines(dead, texts, self.group):
            log.warning("%s", line, extra={"code": Code.TASKS_DEAD})
        for note in notes:
            log.warning("%s", note.text, extra={"code": note.code})

    async def _examples(self) -> dict[str, DeadExample]:
        """Return an example for each class of dead tasks."""
        from docllm.producer.ledger.dead_letters import error_groups  # noqa: PLC0415 - seldom any

        examples: dict[str, DeadExample] = {}
        with suppress(DatabaseError):
            for group in await self.transactions.read(
                error_groups.listed, self.group, Selection(), EXAMPLES
            ):
                dead = group.example
                if dead.id and dead.batch:
                    text = dead_example(dead.error_class, dead.id, dead.batch, dead.error)
                    examples.setdefault(dead.error_class, text)
        return examples

    def _send(self, totals: Totals | None) -> None:
        if totals is not None and self.tell is not None:
            self.tell(to_line(totals))

    async def _read_totals(self) -> Totals | None:
        try:
            totals = await self.transactions.read(progress.read_totals, self.group, self.tiers_of)
        except DatabaseError as error:
            log.debug("progress cannot be read: %s", getattr(error, "orig", error))
            return None
        self._run.see(totals, self.clock.now_s())
        return totals

    async def _show(self) -> None:
        with view_of(self.tell) as view:
            while True:
                began_s = self.clock.now_s()
                await self._show_once(view)
                took_s = self.clock.now_s() - began_s
                await self.clock.sleep(max(view.check_every_s, took_s / SHARE))

    async def _show_once(self, view: View) -> None:
        totals = await self._read_totals()
        now_s = self.clock.now_s()
        if totals is not None:
            view.show(self._run, totals, now_s)
        still_s = now_s - self._run.changed_at_s
        is_due = still_s >= STILL_S and now_s - self._said_at_s >= STILL_S
        if self._run.begun and self._run.open and is_due:
            await self._say_why(still_s)

    async def _say_why(self, still_s: float) -> None:
        self._said_at_s = self.clock.now_s()
        try:
            waiting = await self.transactions.read(progress.waiting, self.group)
        except DatabaseError:
            return  # the ledger's own log line says that it does not answer
        reason, is_trouble = why_still(self.latest.get(), waiting, group=self.group, own=self.own())
        level = logging.WARNING if is_trouble else logging.INFO
        code = Code.STALLED if is_trouble else None
        log.log(level, "nothing has moved for %.0f s: %s", still_s, reason, extra={"code": code})

    async def _warn(self) -> None:
        """Log why work waits, when that begins and now and then while it lasts, and its end."""
        warned_at_s: dict[tuple[str, str], float] = {}
        waits: set[tuple[str, str]] = set()
        while True:
            now_s = self.clock.now_s()
            report = self.latest.get()
            now = [] if report is None else self._without_done_types(sentences(report, self.group))
            due = [
                sentence
                for sentence in now
                if now_s - warned_at_s.get(sentence.about, -WARN_S) >= WARN_S
            ]
            if due:
                self._said_at_s = now_s
                for sentence in due:
                    is_trouble = sentence.urgency.is_trouble
                    level = logging.WARNING if is_trouble else logging.INFO
                    log.log(level, "%s", sentence.text, extra={"code": sentence.code})
                    warned_at_s[sentence.about] = now_s
                    if is_trouble:
                        waits.add(sentence.about)
            if waits and not any(sentence.about in waits for sentence in now):
                log.info("work goes on: no route or topic waits")
                waits.clear()
            await self.clock.sleep(CHECK_EVERY_S)

    def _without_done_types(self, found: Sequence[Sentence]) -> list[Sentence]:
        """Return the reasons without types of which no task is open."""
        is_done = self.first and self._run.begun and not self._run.open
        return [
            sentence
            for sentence in found
            if not (is_done and sentence.urgency is Urgency.TYPE_UNKNOWN)
        ]

    async def _log_deaths(self) -> None:
        """Log once a minute which errors killed tasks since the last time.

        A wrong parameter may kill a whole batch.
        """
        while True:
            await self.clock.sleep(WARN_S)
            for line in self.counts.death_news(self.group):
                log.warning("%s", line, extra={"code": Code.TASKS_DEAD})

    async def _log_retries(self) -> None:
        """Log why attempts fail. A wrong address fails all, long before a task is dead of it."""
        while True:
            for line in self.counts.retry_news(self.clock.now_s(), self.group):
                log.warning("%s", line, extra={"code": Code.ATTEMPTS_FAIL})
            await self.clock.sleep(CHECK_EVERY_S)

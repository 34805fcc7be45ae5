"""Bugs of what an agent does with records: wrongly finished, claimed or forgotten ones."""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from docllm.agent.dispatch.answer_actions import AnswerActions
from docllm.agent.dispatch.claimer import Claimer
from docllm.agent.dispatch.dispatcher import Dispatcher
from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.execution import slots
from docllm.agent.execution.settler import Settled, Settler
from docllm.agent.inflight import table, watermark
from docllm.agent.inflight.decoder import BodyLoader, RecordDecoder
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.records_behind import RecordsBehind
from docllm.agent.intake.acceptance import Intake
from docllm.agent.ledger import sql_ledger
from docllm.agent.ledger.claims import claiming
from docllm.agent.ledger.recovery import reaping
from docllm.agent.ports import ClaimAnswer, Verdict
from docllm.agent.ports.outcome import Released, Snooze
from docllm.producer.ledger import outbox
from tests.simulation.bugs.bug import Bug, patched, replaced
from tests.simulation.bugs.stages import (
    CONTESTED,
    DEADLINES,
    OUTAGES,
    OVERLAPPING,
    REPLAYED,
    REVOCATIONS,
    ZOMBIES,
)


def _skipped(answer: ClaimAnswer) -> Callable[[], AbstractContextManager[Any]]:
    apply = AnswerActions.apply

    def skip(self: AnswerActions, delivery: Any, given: ClaimAnswer, row: Any) -> None:
        apply(self, delivery, ClaimAnswer.DONE if given is answer else given, row)

    return replaced(AnswerActions, "apply", skip)


def _passes(kind: type) -> Callable[[], AbstractContextManager[Any]]:
    follow = Dispatcher._follow_verdict

    def passes(self: Dispatcher, delivery: Any, outcome: Any, verdict: Verdict) -> None:
        if isinstance(outcome, kind) and delivery.partition in self.partitions:
            self.finisher.finish_with_copies(delivery, -1)
        else:
            follow(self, delivery, outcome, verdict)

    return replaced(Dispatcher, "_follow_verdict", passes)


def _changes_ignored() -> AbstractContextManager[Any]:
    """Agents run the line as it was loaded."""

    async def ignore(_self: BodyLoader, _changed: Any) -> None:
        """Read no change."""

    return patched(BodyLoader, "_override", ignore)


def _superseded_passes() -> AbstractContextManager[Any]:
    """The reaper's own order would save the task; the rule must hold without it."""
    back = reaping._requeue

    def silent(*args: Any) -> None:
        with patched(outbox, "place", lambda *_args, **_options: []):
            back(*args)

    stack = ExitStack()
    stack.enter_context(patched(reaping, "_requeue", silent))
    stack.enter_context(
        patched(
            Dispatcher,
            "_superseded",
            lambda self, delivery, _outcome: self.finisher.finish_with_copies(delivery, -1),
        )
    )
    return stack


def _settled_before_the_ledger() -> AbstractContextManager[Any]:
    run, settle = Settler.run, Settler.settle
    finishes: dict[Settler, Callable[[Sequence[Settled]], None]] = {}

    async def listen(self: Settler, finish: Callable[[Sequence[Settled]], None]) -> None:
        finishes[self] = finish
        await run(self, finish)

    def early(self: Settler, delivery: Any, outcome: Any) -> None:
        settle(self, delivery, outcome)
        finishes[self]([Settled(delivery, outcome, Verdict.SETTLED)])

    stack = ExitStack()
    stack.enter_context(patched(Settler, "run", listen))
    stack.enter_context(patched(Settler, "settle", early))
    return stack


def _answered_in_turn() -> AbstractContextManager[Any]:
    """The ledger's answer is taken for that of the page which began first."""
    write = Settler._write
    begun: defaultdict[Settler, deque[Any]] = defaultdict(deque)

    async def in_turn(self: Settler, page: Any, take_verdicts: Any) -> None:
        begun[self].append(page)

        def take(settled: Sequence[Settled]) -> None:
            answered = zip(begun[self].popleft(), settled, strict=False)
            take_verdicts(
                [
                    Settled(delivery, settlement.outcome, other.verdict)
                    for (delivery, settlement), other in answered
                ]
            )

        await write(self, page, take)

    return patched(Settler, "_write", in_turn)


def _highest(self: Any, offset: int) -> None:
    for older in [unfinished for unfinished in self._open if unfinished <= offset]:
        del self._open[older]
    self.watermark = next(iter(self._open), self._newest + 1)


def _no_followers(
    self: table.InFlightTable, delivery: Any, _now_s: float, *, redelivered: bool
) -> None:
    self.load_body(delivery, delivery.value or b"")
    self._by_task[delivery.task_id] = delivery
    (self.queue_for_question if redelivered else self.queue_for_claim)(delivery)


def _followers_forgotten() -> AbstractContextManager[Any]:
    remove = table.InFlightTable.remove

    def forget(self: table.InFlightTable, delivery: Any) -> None:
        self.behind.by_task.pop(delivery.task_id, None)
        remove(self, delivery)

    return patched(table.InFlightTable, "remove", forget)


def _copies_of_any_fence() -> AbstractContextManager[Any]:
    """The record of a settled task's next attempt may be there already."""
    take = RecordsBehind.take_copies
    return patched(
        RecordsBehind,
        "take_copies",
        lambda self, delivery, _fence: take(self, delivery, 1 << 30),
    )


def _new_token() -> AbstractContextManager[Any]:
    tokens = iter(range(1, 1 << 23))

    async def pages(
        self: Any, records: Any, owner: int, claim_s: float, *, with_suspects: bool = False
    ) -> Any:
        def work(c: Any, page: Any) -> Any:
            return claiming.claim(
                c, page, owner + (next(tokens) << 8), claim_s, with_suspects=with_suspects
            )

        return await self._pages(records, lambda page: self._claiming.write(work, page))

    return patched(sql_ledger.SqlLedger, "claim", pages)


def _revoked_claim_forgotten() -> AbstractContextManager[Any]:
    start = Claimer._start

    def forget(self: Claimer, delivery: Delivery, *args: Any, **named: Any) -> None:
        if delivery.partition in self.partitions:
            start(self, delivery, *args, **named)

    return patched(Claimer, "_start", forget)


def _expired_called() -> AbstractContextManager[Any]:
    without_run = slots._without_run

    def anyway(delivery: Delivery) -> Any:
        expired = delivery.row is not None and delivery.row.expired
        return None if expired else without_run(delivery)

    return patched(slots, "_without_run", anyway)


def _answer_given_back() -> AbstractContextManager[Any]:
    attempt = slots.Slots._attempt

    async def forgotten(self: slots.Slots, delivery: Delivery, permit: Any) -> Any:
        outcome = await attempt(self, delivery, permit)
        return outcome if delivery.partition.number == 0 else Released()

    return patched(slots.Slots, "_attempt", forgotten)


def _intake_first() -> AbstractContextManager[Any]:
    take = Intake._take

    async def first(self: Intake, records: Sequence[Any]) -> None:
        for record in records:
            self.partitions.finish_record(record.partition, record.offset)
        self.partitions.flush()
        await take(self, records)

    return patched(Intake, "_take", first)


async def _suspects_dropped(self: QuarantineQueue) -> None:
    while self._rejected:
        _, record = self._rejected.popleft()
        self.partitions.finish_record(record.partition, record.offset)
        if isinstance(record, Delivery):
            self.table.remove(record)
    self.partitions.flush()


def _bad_record_raises() -> AbstractContextManager[Any]:
    read = RecordDecoder.read

    def strict(self: RecordDecoder, record: Any) -> Any:
        delivery = read(self, record)
        if not isinstance(delivery, Delivery):
            raise ValueError(delivery.reason)  # noqa: TRY004 - any error
        return delivery

    return patched(RecordDecoder, "read", strict)


BUGS = {
    "what a replay changed is ignored": Bug("P1", _changes_ignored, REPLAYED),
    "held is skipped": Bug("P3", _skipped(ClaimAnswer.HELD)),
    "early is skipped": Bug("P3", _skipped(ClaimAnswer.EARLY)),
    "superseded lets the offset pass": Bug("P3", _superseded_passes, ZOMBIES),
    "snooze lets the offset pass": Bug("P3", _passes(Snooze), CONTESTED),
    "release lets the offset pass": Bug("P3", _passes(Released), OUTAGES),
    "the offset moves before the settle": Bug("P3", _settled_before_the_ledger),
    "settles do not overtake each other": Bug("P3", _answered_in_turn, OVERLAPPING),
    "the highest finished is committed": Bug(
        "P3", replaced(watermark.OffsetTracker, "finish_offset", _highest)
    ),
    "intake commits first": Bug("P3", _intake_first),
    "suspects are dropped": Bug("P3", replaced(QuarantineQueue, "keep", _suspects_dropped)),
    "two records of one task in a claim": Bug(
        "P4", replaced(table.InFlightTable, "add", _no_followers)
    ),
    "the second record of a task is forgotten": Bug("P1", _followers_forgotten),
    "a record of a newer fence is taken for a copy": Bug("P3", _copies_of_any_fence),
    "new token when a claim is tried again": Bug("P7", _new_token),
    "a revoked claim is forgotten": Bug("P7", _revoked_claim_forgotten, REVOCATIONS),
    "an expired task is called": Bug("P4", _expired_called, DEADLINES),
    "an answer is thrown away": Bug("P4", _answer_given_back),
    "a superseded answer is forgotten": Bug(
        "P4",
        replaced(
            Dispatcher,
            "_superseded",
            lambda self, delivery, _outcome: self.table.queue_for_question(delivery),
        ),
        CONTESTED,
    ),
    "a bad record ends the program": Bug("P9", _bad_record_raises),
}

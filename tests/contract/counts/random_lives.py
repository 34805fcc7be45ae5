"""Random lives of tasks in the real ledger, and what counts, letters and orders must say of them.

Tasks are settled in every way, lost, cancelled and replayed, in an order that follows from a seed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from docllm.agent.lease import Lease
from docllm.agent.ledger.claims import claiming, waking
from docllm.agent.ledger.leases import leasing
from docllm.agent.ledger.recovery import reaping, sweeping
from docllm.agent.ports import Claimable, Row, Settlement
from docllm.agent.ports.outcome import (
    Cancelled,
    Dead,
    Failure,
    Moved,
    Outcome,
    Released,
    Retry,
    Snooze,
    Spent,
    Succeeded,
)
from docllm.producer.ledger import cancel, outbox
from docllm.producer.ledger.new_tasks import NewTask
from docllm.schemas.ledger import tables
from docllm.schemas.task.failures import UNTRIED, Disposition, ErrorClass
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.record.lanes import DESTINATIONS, Lane
from docllm.schemas.task.result.codec import COMPLETION
from docllm.schemas.task.states import WAITING, Status
from docllm.schemas.task.waits import WaitReason
from tests.contract.support.ledger_dead import applied, delivered, request, stored
from tests.support.ledger_database import GROUP, ORIGIN, LedgerDatabase

ROUTES, MODELS, TENANTS = ("east", "west"), ("small", "large"), ("acme", "bolt")
BATCHES = ("first", "second")
_COSTS = ("tokens_in", "tokens_out", "tokens_cached", "cost_micro", "unsure_micro", "unpriced")
_TOTALS = ("attempts", "tokens_in", "tokens_out", "cost_micro", "unpriced")
_COPIES = ("batch_id", "type", "tenant", "replays", "expires_at")
_REASON = ("error_class", "fingerprint", "disposition")


class Lives:
    """Tasks of two batches and tenants, and the steps that happen to them."""

    def __init__(self, ledger_db: LedgerDatabase, seed: int) -> None:
        self.ledger_db, self.random = ledger_db, Random(seed)  # noqa: S311 - a walk, no secret
        self.running: list[tuple[Row, int, Lease]] = []
        self.seen: Counter[str] = Counter()
        ledger_db.empty()
        for _ in range(4):
            self.load()

    def step(self) -> None:
        """Let one thing happen."""
        steps: dict[Callable[[], None], int] = {
            self.load: 1,
            self.claim: 8,
            self.settle: 8,
            self.lose: 3,
            self.cancel: 1,
            self.cancel_one: 1,
            self.replay: 3,
            self.replay_cancelled: 2,
            self.order_again: 2,
        }
        (step,) = self.random.choices(list(steps), list(steps.values()))
        step()

    def load(self) -> None:
        number = self.ledger_db.count(tables.task)
        into = self.ledger_db.batch(self.random.choice(BATCHES))
        if not into.cancelled:
            lane = tuple(Lane)[number // len(TENANTS) % len(Lane)]
            tasks = [_new_task(f"{number} {name}", name, lane) for name in TENANTS]
            self.ledger_db.accept(tasks, into)

    def claim(self) -> None:
        self.ledger_db.ago(tables.task.c.due_at, 1)
        free = self._rows(WAITING)
        if not free:
            return
        row = self.random.choice(free)
        if self.random.random() < 0.3:
            self.ledger_db.set(tables.task, row.id, lease_losses=2)
        lease = self.ledger_db.agent()
        owner = lease.next_owner()
        record = self._record(row)
        claimed = self.ledger_db.answers([record], owner)[row.id][1]
        assert claimed is not None
        self.running.append((claimed, owner, lease))

    def settle(self) -> None:
        if not self.running:
            return
        ended = self.random.sample(self.running, k=min(2, len(self.running)))
        group = [
            Settlement(
                row=row,
                owner=owner,
                outcome=self._outcome(),
                route=self.random.choice(ROUTES),
                origin=ORIGIN,
            )
            for row, owner, _ in ended
        ]
        verdicts, _ = self.ledger_db.settle_all(group)
        self.seen.update(verdict.value for verdict in verdicts)
        self.running = [claim for claim in self.running if claim not in ended]

    def lose(self) -> None:
        """Lose an agent; its claim stays, and may still be settled late."""
        if self.running:
            _, _, lease = self.random.choice(self.running)
            self.ledger_db.call(leasing.declare_lost, lease.agent_id)
            found = self.ledger_db.call(reaping.orphans, GROUP)
            tasks = self.ledger_db.call(reaping.reset_orphans, GROUP, found)
            self.seen.update({"reset": tasks.waiting, "lost": tasks.dead})

    def cancel(self) -> None:
        target = self.ledger_db.batch(self.random.choice(BATCHES))
        self.ledger_db.cancel(target.name)
        cancelled, _ = self.ledger_db.call(cancel.cancel_page, target.id)
        self.seen["cancelled"] += cancelled

    def cancel_one(self) -> None:
        key = self.random.choice(self._rows(tuple(Status))).task_key
        self.ledger_db.call(cancel.cancel_one, key, GROUP, None, "somebody")

    def replay(self) -> None:
        delivered(self.ledger_db)
        self.seen["replayed"] += self._replayed()

    def replay_cancelled(self) -> None:
        self.seen["replayed cancelled"] += self._replayed(cancelled=True)

    def _replayed(self, **selection: Any) -> int:
        """Replay all that a selection has; return how many tasks."""
        run = stored(self.ledger_db, request(cap=1 << 14, **selection))
        return len(applied(self.ledger_db, run).items) if run is not None else 0

    def order_again(self) -> None:
        """Order records as relief, call-up and sweep do."""
        row = self.random.choice(self._rows(tuple(Status)))
        if self.random.random() < 0.5:
            self.ledger_db.call(claiming.relieve, GROUP, self._record(row), row.fence, None)
        elif row.status in WAITING:
            self.ledger_db.call(waking.make_due, GROUP, [row.id])
        else:
            delivered(self.ledger_db)
            self.ledger_db.ago(tables.task.c.due_at, 700)
            topics = [sweeping.StatusTopics(status, ("tasks",), None) for status in WAITING]
            self.ledger_db.call(sweeping.replace_lost_records, GROUP, topics, 600.0)

    def _rows(self, states: Sequence[Status]) -> list[Any]:
        return [row for row in self.ledger_db.rows(tables.task) if row.status in states]

    def _record(self, row: Any) -> Claimable:
        batch = {one.id: one.name for one in self.ledger_db.rows(tables.batch)}[row.batch_id]
        return Claimable(
            Publication(
                ledger=self.ledger_db.ledger_id,
                group=GROUP,
                batch=batch,
                task_id=row.id,
                fence=row.fence,
            ),
            None,
        )

    def _outcome(self) -> Outcome:
        spent = self._spent()
        failure = Failure(ErrorClass.SERVER, self.random.choice(["it answered 503", "it is busy"]))
        too_long = Failure(ErrorClass.TOO_LONG, "the answer was cut")
        outcomes: list[Outcome] = [
            Succeeded(b"answer", COMPLETION, spent),
            Retry(failure, spent, "30s", 1.0),
            Retry(failure, spent, "1h", 1.0),
            Moved(Failure(ErrorClass.ROUTE, "closed"), Spent(), 1.0, WaitReason.ROUTE, "x"),
            Snooze(failure, spent, 1.0),
            Released(spent),
            Released(),
            Cancelled(spent),
            Dead(too_long, spent),
            Dead(too_long, spent),
            Dead(failure, spent, Disposition.EXHAUSTED),
        ]
        return self.random.choice(outcomes)

    def _spent(self) -> Spent:
        tokens_in, cost = self.random.randrange(100), self.random.randrange(1000)
        return Spent(
            model=self.random.choice(MODELS),
            tokens_in=tokens_in,
            tokens_out=self.random.randrange(10),
            cost_micro=cost,
            call_id="trace",
            duration_ms=1500,
            tokens_cached=self.random.randrange(tokens_in + 1),
            unsure_micro=self.random.choice([0, cost]),
            unpriced=cost % 3,
        )


def _new_task(key: str, tenant: str, lane: Lane) -> NewTask:
    name = key.encode()
    return NewTask(
        key=name,
        digest=bytes(16),
        value=name,
        type="document",
        tenant=tenant,
        max_attempts=5,
        expires_at=None,
        raw_key=None,
        lane=lane,
    )


def faults(ledger_db: LedgerDatabase) -> list[str]:
    """Return what counts, dead letters and orders say wrongly; empty when all is right."""
    return [
        *_faults_of_counts(ledger_db),
        *_faults_of_letters(ledger_db),
        *_faults_of_costs(ledger_db),
        *_faults_of_carriers(ledger_db),
        *_faults_of_lanes(ledger_db),
    ]


def _faults_of_counts(ledger_db: LedgerDatabase) -> list[str]:
    """Compare the sums of the counts with the tasks that are dead or cancelled now."""
    tally, tasks = ledger_db.rows(tables.tally), ledger_db.rows(tables.task)
    where = ("batch_id", "type", "tenant", "route")
    dead_sums = tuple(f"dead_{name}" for name in _TOTALS)
    died = [row for row in tally if row.state == Status.DEAD]
    counted = _sums(died, (*where, "model", "outcome", *_REASON[1:]), ("delta", *dead_sums))
    letters = _sums(ledger_db.rows(tables.dead_letter), (*where, "model", *_REASON), _TOTALS, n=1)
    cancels = [row for row in tally if row.state == Status.CANCELLED]
    cancelled = [row for row in tasks if row.status == Status.CANCELLED]
    return [
        *_differences("deaths", counted, letters),
        *_differences("cancels", _sums(cancels, where, ("delta",)), _sums(cancelled, where, n=1)),
        *(
            f"{row.delta} cancelled of model {row.model}"
            for row in cancels
            if row.delta and row.model
        ),
    ]


def _faults_of_letters(ledger_db: LedgerDatabase) -> list[str]:
    """Compare each dead letter with its task and with all attempts of it."""
    attempts: dict[int, list[Any]] = defaultdict(list)
    for attempt in ledger_db.rows(tables.task_attempt):
        attempts[attempt.task_id].append(attempt)
    tasks = {row.id: row for row in ledger_db.rows(tables.task)}
    found = []
    for letter in ledger_db.rows(tables.dead_letter):
        own, task = attempts[letter.task_id], tasks[letter.task_id]
        tried = sum(one.error_class not in UNTRIED for one in own)
        sums = [tried, *(sum(getattr(one, name) for one in own) for name in _TOTALS[1:])]
        if sums != [getattr(letter, name) for name in _TOTALS]:
            found.append(f"the letter of task {task.id} has other sums than {sums}")
        if any(getattr(task, name) != getattr(letter, name) for name in (*_COPIES, "route")):
            found.append(f"the letter of task {task.id} differs from its task")
    return found


def _faults_of_costs(ledger_db: LedgerDatabase) -> list[str]:
    """Compare the costs of the counts with those of attempts and results, by route and model."""
    paid = [*ledger_db.rows(tables.task_attempt), *ledger_db.rows(tables.task_result)]
    by = ("route", "model")
    counted = _sums(ledger_db.rows(tables.tally), by, _COSTS)
    return _differences("costs", counted, _sums(paid, by, _COSTS))


def _faults_of_carriers(ledger_db: LedgerDatabase) -> list[str]:
    """Compare what tasks say of their newest record with the newest order for it."""
    newest = {
        item.id: order.destination
        for order in ledger_db.rows(tables.outbox)
        if order.destination != "dlq"
        for item in outbox.unpack(order.items)
    }
    return [
        f"task {row.id} is carried by {row.carrier}, not by {newest[row.id]}"
        for row in ledger_db.rows(tables.task)
        if newest.get(row.id, row.carrier) != row.carrier
    ]


def _faults_of_lanes(ledger_db: LedgerDatabase) -> list[str]:
    """Compare the lane in which a task's newest record is with the task's own."""
    return [
        f"task {row.id} of the lane {Lane(row.lane).word} is carried by {row.carrier}"
        for row in ledger_db.rows(tables.task)
        if row.carrier in DESTINATIONS and row.carrier != Lane(row.lane).destination
    ]


Sums = dict[tuple[Any, ...], tuple[int, ...]]


def _sums(
    rows: Iterable[Any], by: Sequence[str], names: Sequence[str] = (), n: int | None = None
) -> Sums:
    """Return the sums of the named columns, after a count of rows if `n` is 1; without zeros."""
    sums: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        key = tuple(getattr(row, name) for name in by)
        numbers = [*([n] if n else []), *(getattr(row, name) for name in names)]
        total = sums.setdefault(key, [0] * len(numbers))
        total[:] = [old + new for old, new in zip(total, numbers, strict=True)]
    return {key: tuple(total) for key, total in sums.items() if any(total)}


def _differences(what: str, counted: Sums, real: Sums) -> list[str]:
    return [
        f"{what} of {key}: counted {counted.get(key)}, really {real.get(key)}"
        for key in counted.keys() | real.keys()
        if counted.get(key) != real.get(key)
    ]

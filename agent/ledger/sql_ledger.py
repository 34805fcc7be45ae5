"""The `Ledger` port over SQL.

Each kind of call has its own executor. A call is retried until the server answers.

The outcomes of a page do not fail together. While the server is away, the page waits and nothing is
decided. A page that cannot be written although the server answers is split in halves, down to one
outcome; the task of that outcome is then settled as dead.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, text

from docllm.agent.judge import Tier
from docllm.agent.ledger.claims import claiming
from docllm.agent.ledger.guards import looks
from docllm.agent.ledger.settlements.follow_ups import ordered
from docllm.agent.ledger.settlements.settling import NO_HOOKS, settle
from docllm.agent.ports import Claimable, ClaimAnswers, Order, RejectedRecord, Settlement, Verdict
from docllm.agent.ports.llm import MAX_REPLY_BYTES
from docllm.agent.ports.outcome import Dead, Failure, Spent
from docllm.producer.ledger import quarantine, store, task_changes
from docllm.schemas.codes import Code
from docllm.schemas.errors import DeniedError
from docllm.schemas.ledger.database import Database, Stopped
from docllm.schemas.ledger.errors import busy, passing
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.hooks import Hooked
from docllm.schemas.task.line.overrides import Overrides

log = logging.getLogger(__name__)

_TRIES = 5
# A row alone is tried for half a minute, because an unreliable connection is not the row's fault.
_TRIES_ALONE = 60


@dataclass(frozen=True, slots=True)
class Executors:
    """The executors of the ledger, one for each kind of work, so that none waits for another.

    `settle` runs `settles_at_once` calls at once, the others one.
    """

    claim: Executor
    settle: Executor
    background: Executor
    settles_at_once: int = 1


@dataclass(kw_only=True, eq=False)
class SqlLedger:
    """The ledger in MySQL, MariaDB or SQLite."""

    database: Database
    group: str
    clock: Clock
    executors: Executors
    longest_tier: Tier
    hooked: Callable[[], Hooked] = lambda: NO_HOOKS
    release: str = ""
    streams_results: bool = False
    _claiming: Transactions = field(init=False)
    _background: Transactions = field(init=False)

    def __post_init__(self) -> None:
        self._claiming, self._background = (
            Transactions(database=self.database, executor=executor)
            for executor in (self.executors.claim, self.executors.background)
        )

    async def ask(self, records: Sequence[Claimable]) -> ClaimAnswers:
        """Answer without a lock."""
        return await self._pages(records, lambda page: self._claiming.read(claiming.ask, page))

    async def claim(
        self,
        records: Sequence[Claimable],
        owner: int,
        claim_s: float,
        *,
        with_suspects: bool = False,
    ) -> ClaimAnswers:
        """Claim under `owner`; after a lost answer, ask again with the same owner."""
        return await self._pages(
            records,
            lambda page: self._claiming.write_singly(
                claiming.claim, page, owner, claim_s, with_suspects=with_suspects
            ),
        )

    async def bodies(self, task_ids: Sequence[int]) -> dict[int, tuple[bytes, bytes]]:
        """Return keys and values of tasks."""
        return await self._claiming.read(claiming.bodies, task_ids)

    async def overrides(self, task_ids: Sequence[int]) -> dict[int, Overrides]:
        """Return what replays have changed of these tasks."""
        return await self._claiming.read(task_changes.overrides, task_ids)

    async def relieve(self, record: Claimable, fence: int, owner: int | None) -> Order | None:
        """Order a replacement record for a task that runs or waits."""
        return await self._background.write(claiming.relieve, self.group, record, fence, owner)

    async def join_look(self, guard_id: int, task_id: int) -> bool:
        """Let a task join a guard's look if the look has a free place."""
        return await self._background.write(looks.join_look, guard_id, task_id)

    async def quarantine(self, records: Sequence[RejectedRecord]) -> list[Order]:
        """Store rejected records; return orders for their dead letters."""
        return await self._background.write(quarantine.keep, self.group, records)

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        """Settle a page, in one transaction if possible."""
        return await self.executors.settle(lambda: self._settle(settlements))

    async def _pages(
        self,
        records: Sequence[Claimable],
        answer: Callable[[Sequence[Claimable]], Awaitable[ClaimAnswers]],
    ) -> ClaimAnswers:
        answers: ClaimAnswers = {}
        for start in range(0, len(records), claiming.PAGE):
            answers |= await answer(records[start : start + claiming.PAGE])
        return answers

    def _settle(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        answer = self._write(settlements)
        if not isinstance(answer, Exception):
            return answer
        if len(settlements) == 1:
            return self._settle_as_dead(settlements[0], answer)
        half = len(settlements) // 2
        verdicts, orders = self._settle(settlements[:half])
        crash.reach("settle.split")
        more_verdicts, more_orders = self._settle(settlements[half:])
        return verdicts + more_verdicts, orders + more_orders

    def _write(
        self, settlements: Sequence[Settlement]
    ) -> tuple[list[Verdict], list[Order]] | Exception:
        """Return the verdicts, or the error that prevents writing these rows.

        While the server is away or busy, it waits and tries again.
        """
        now_utc_s = self.clock.utc_s()
        tries = _TRIES if len(settlements) > 1 else _TRIES_ALONE
        failures = waits = 0
        while True:
            try:
                return self._settle_once(settlements, now_utc_s)
            except (Stopped, DeniedError):
                raise
            except Exception as error:  # noqa: BLE001 - one row's error must not end the others
                if not self.database.answers():
                    self.database.wait_for_answer()
                elif busy(error):
                    waits += 1
                    self.database.pause(waits)  # a busy server says nothing about a row
                else:
                    failures += 1
                    if failures == tries or not passing(error):
                        return error
                    self.database.pause(failures)

    def _settle_once(
        self, settlements: Sequence[Settlement], now_utc_s: float
    ) -> tuple[list[Verdict], list[Order]]:
        first_id = self._follow_up_ids(settlements)
        return self.database.run(
            lambda c: settle(
                c,
                self.group,
                settlements,
                now_utc_s,
                self.longest_tier,
                first_id,
                self.hooked(),
                release=self.release,
                streams_results=self.streams_results,
            ),
            tries=1,
        )

    def _follow_up_ids(self, settlements: Sequence[Settlement]) -> int:
        """Take an id for each follow-up, in a transaction of its own, and return the first.

        All loads and settles take ids from one row, so it is not kept locked.
        """
        count = sum(len(ordered(settlement)) for settlement in settlements)
        if not count:
            return 0
        first = self.database.run(lambda c: store.take_ids(c, count), tries=1)
        crash.reach("settle.ids_taken")
        return first

    def _settle_as_dead(
        self, settlement: Settlement, error: Exception
    ) -> tuple[list[Verdict], list[Order]]:
        """Settle a task as dead, without a body, because its outcome cannot be written.

        If that fails too, leave the task until the time of its claim is over.
        """
        reason = f"{type(error).__name__}: {getattr(error, 'orig', '')}"[:500]
        log.error(
            "the outcome of task %d cannot be written (%s); it is settled as dead",
            settlement.row.task_id,
            reason,
            extra={"code": Code.OUTCOME_UNWRITABLE},
        )
        for spent in (settlement.outcome.spent, Spent()):  # perhaps the cost cannot be written
            answer = self._write(
                [replace(settlement, outcome=Dead(Failure(ErrorClass.SETTLE, reason), spent))]
            )
            if not isinstance(answer, Exception):
                return answer
        log.error(
            "task %d cannot be settled as dead either: %s",
            settlement.row.task_id,
            getattr(answer, "orig", type(answer).__name__),
            extra={"code": Code.OUTCOME_UNWRITABLE},
        )
        return [Verdict.GIVEN_UP], []


def reply_limit_bytes(connection: Connection) -> int:
    """Return the largest size of a stored reply, in bytes.

    Bodies travel as hexadecimal digits, and a page of settles holds more than one of them.
    """
    if connection.dialect.name == "sqlite":
        return MAX_REPLY_BYTES
    packet = int(connection.execute(text("SELECT @@max_allowed_packet")).scalar_one())
    return min(MAX_REPLY_BYTES, packet // 4)

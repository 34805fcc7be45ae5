"""The ports of the ledger without a database: what they are asked is recorded."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from docllm.agent.ports import (
    Claimable,
    ClaimAnswer,
    ClaimAnswers,
    RejectedRecord,
    Row,
    Settlement,
    Verdict,
)
from docllm.producer.ports import Order
from docllm.schemas.task.line.overrides import Overrides
from docllm.schemas.task.states import Status

_ROW = Row(
    task_id=7,
    batch_id=1,
    status=Status.PENDING,
    owner=0,
    fence=0,
    counted_before=0,
    max_attempts=5,
    lease_losses=0,
    due_in_s=0.0,
    expired=False,
    type="document",
    task_key=b"k",
    batch="batch",
)


def new_row(**values: Any) -> Row:
    """Return the row of a task that waits, with other values for some columns."""
    return replace(_ROW, **values)


class FakeLedger:
    """Answers about tasks by their ids; a task without an answer is unknown.

    It accepts each settlement. Tested by tests/contract/claims/test_fake_ledger.py.
    """

    def __init__(self, answers: ClaimAnswers | None = None) -> None:
        self.answers: ClaimAnswers = answers or {}
        self.stored_bodies: dict[int, tuple[bytes, bytes]] = {}
        self.stored_overrides: dict[int, Overrides] = {}
        self.questions: list[int] = []  # how many records each one had
        self.wanted_bodies: list[list[int]] = []
        self.quarantined: list[list[RejectedRecord]] = []  # page by page
        self.settled: list[Settlement] = []

    async def ask(self, records: Sequence[Claimable]) -> ClaimAnswers:
        self.questions.append(len(records))
        return self._answers(records)

    async def claim(
        self,
        records: Sequence[Claimable],
        owner: int,
        claim_s: float,
        *,
        with_suspects: bool = False,
    ) -> ClaimAnswers:
        return self._answers(records)

    def _answers(self, records: Sequence[Claimable]) -> ClaimAnswers:
        ids = [record.publication.task_id for record in records]
        return {number: self.answers.get(number, (ClaimAnswer.UNKNOWN, None)) for number in ids}

    async def bodies(self, task_ids: Sequence[int]) -> dict[int, tuple[bytes, bytes]]:
        self.wanted_bodies.append(list(task_ids))
        return self.stored_bodies

    async def overrides(self, task_ids: Sequence[int]) -> dict[int, Overrides]:
        return {number: self.stored_overrides.get(number, {}) for number in task_ids}

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        self.settled.extend(settlements)
        return [Verdict.SETTLED] * len(settlements), []

    async def relieve(self, record: Claimable, fence: int, owner: int | None) -> Order | None:
        """Relieve no record."""

    async def join_look(self, guard_id: int, task_id: int) -> bool:
        return False

    async def quarantine(self, records: Sequence[RejectedRecord]) -> list[Order]:
        self.quarantined.append(list(records))
        return []


class NoLetters:
    """No dead letter ever comes back."""

    async def without_letters(self, records: Sequence[RejectedRecord]) -> list[RejectedRecord]:
        return list(records)

    async def take_lines(self, digests: Collection[bytes], topic: str) -> Collection[bytes]:
        return ()


class NoRelay:
    """Sends no order; records those that it was given."""

    def __init__(self) -> None:
        self.orders: list[Order] = []

    async def send(self, orders: Sequence[Order]) -> None:
        self.orders.extend(orders)

    def waiting(self) -> int:
        return 0

"""The claimer asks about deliveries, claims them, and starts or moves what it claimed."""

import asyncio
from collections.abc import Sequence
from unittest.mock import create_autospec

from docllm.agent.dispatch.answer_actions import AnswerActions
from docllm.agent.dispatch.claimer import Claimer, Purpose
from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.dispatch.record_finisher import RecordFinisher, Wakeups
from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.slots import Slots
from docllm.agent.inflight.decoder import BodyLoader
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.lease import Lease
from docllm.agent.ports import Claimable, ClaimAnswer, ClaimAnswers
from docllm.agent.ports.outcome import Released, Spent, Succeeded
from docllm.agent.routes import RouteNames
from docllm.schemas.settings.config import Config
from tests.support.clock import HandClock
from tests.support.ledger import FakeLedger, new_row
from tests.support.routes import routes
from tests.support.slots import PARTITION, OneLease, SlotsHarness, claimed, ending


class OneAnswer(FakeLedger):
    """Gives one answer about every record."""

    def __init__(self, answer: ClaimAnswer, lease: Lease) -> None:
        super().__init__({number: (answer, new_row(task_id=number)) for number in (1, 2)})
        self._lease = lease
        self.owners: list[int] = []
        self.suspects: list[bool] = []

    async def claim(
        self,
        records: Sequence[Claimable],
        owner: int,
        claim_s: float,
        *,
        with_suspects: bool = False,
    ) -> ClaimAnswers:
        assert self._lease.running == 1  # the lease must not look idle meanwhile
        self.owners.append(owner)
        self.suspects.append(with_suspects)
        return await super().claim(records, owner, claim_s, with_suspects=with_suspects)


class ClaimerHarness:
    """A claimer over a real table and a ledger that gives one answer about every record."""

    def __init__(self, answer: ClaimAnswer, *, ours: bool = True) -> None:
        self.lease, self.wakeups = Lease(1, 0.0), Wakeups()
        self.ledger = OneAnswer(answer, self.lease)
        self.table = InFlightTable(limits=InFlightLimits())
        self.answers = create_autospec(AnswerActions, instance=True)
        self.slots = create_autospec(Slots, instance=True)
        self.partitions = create_autospec(Partitions, instance=True)
        self.partitions.__contains__.return_value = ours
        self.deliveries: list[Delivery] = [claimed(task_id, 0.0) for task_id in (1, 2)]
        for delivery in self.deliveries:
            self.table.add(delivery, 0.0, redelivered=True)
        self.claimer = Claimer(
            ledger=self.ledger,
            leases=OneLease(self.lease),
            claim_s=60.0,
            partitions=self.partitions,
            table=self.table,
            quarantine=create_autospec(QuarantineQueue, instance=True),
            answers=self.answers,
            bodies=BodyLoader(ledger=self.ledger, table=self.table, naming=RouteNames(Config())),
            admission=SlotsHarness(routes(), ending(Released())).admission(CrashSuspects()),
            slots=self.slots,
            finisher=create_autospec(RecordFinisher, instance=True),
            wakeups=self.wakeups,
            clock=HandClock(),
            limits=InFlightLimits(),
        )

    def claim(self, purpose: Purpose) -> None:
        asyncio.run(self.claimer.claim(self.deliveries, purpose))


def test_claimed_deliveries_are_started_under_one_owner() -> None:
    harness = ClaimerHarness(ClaimAnswer.CLAIMED)

    harness.claim(Purpose.RUN)

    assert [call.args[0] for call in harness.slots.start.call_args_list] == harness.deliveries
    assert {delivery.owner for delivery in harness.deliveries} == set(harness.ledger.owners)
    assert harness.ledger.suspects == [False]


def test_every_other_answer_is_handed_on() -> None:
    """Nothing is started, and the lease may look idle again."""
    harness = ClaimerHarness(ClaimAnswer.HELD)

    harness.claim(Purpose.RUN_SUSPECT)

    assert [call.args[:2] for call in harness.answers.apply.call_args_list] == [
        (delivery, ClaimAnswer.HELD) for delivery in harness.deliveries
    ]
    harness.slots.start.assert_not_called()
    assert (harness.ledger.suspects, harness.lease.running) == ([True], 0)


def test_an_answer_is_dropped_if_the_delivery_ended_meanwhile() -> None:
    """A rebalance may end a delivery while the ledger is asked about it."""
    harness = ClaimerHarness(ClaimAnswer.DONE)
    ended, asked = harness.deliveries
    harness.table.remove(ended)

    asyncio.run(harness.claimer.ask(harness.deliveries))

    assert ended.state is DeliveryState.ENDED
    assert [call.args[0] for call in harness.answers.apply.call_args_list] == [asked]
    harness.partitions.note_not_redelivered.assert_not_called()


def test_a_partition_whose_records_are_all_claimable_is_fresh() -> None:
    harness = ClaimerHarness(ClaimAnswer.CLAIMABLE)

    asyncio.run(harness.claimer.ask(harness.deliveries))

    harness.partitions.note_not_redelivered.assert_called_once_with(PARTITION)


def test_waiting_tasks_of_a_cancelled_batch_are_asked_about_at_once() -> None:
    """The loops are woken only if such a task waits."""
    harness = ClaimerHarness(ClaimAnswer.DONE)
    delivery, other = harness.table.take_to_ask(0.0, 10)
    harness.table.delay(delivery, 86_400.0)
    harness.table.remove(other)

    woken = []
    for batch in ("another", delivery.publication.batch):
        harness.claimer.ask_about_batches(frozenset({batch}))
        woken.append(harness.wakeups.ask.is_set())

    assert woken == [False, True]
    assert harness.table.take_to_ask(0.0, 10) == [delivery]


def test_a_paid_answer_is_settled_although_its_partition_was_revoked() -> None:
    """Another delivery of that partition is given back."""
    harness = ClaimerHarness(ClaimAnswer.CLAIMED, ours=False)
    paid, unpaid = harness.deliveries
    paid.kept_answer = Succeeded(b"{}", 0, Spent())

    harness.claim(Purpose.RUN)

    harness.slots.start.assert_called_once_with(paid)
    harness.slots.give_back.assert_called_once_with(unpaid)

"""A delivery: a record in flight, and what may be done with it."""

from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.lease import Lease
from docllm.agent.ports import Claimable, Partition
from docllm.agent.ports.outcome import Spent
from docllm.schemas.task.record.envelope import Publication
from tests.support.slots import claimed

PUBLICATION = Publication(ledger="ledger", group="g", batch="b", task_id=7, fence=2)


def delivered() -> Delivery:
    """Return a delivery as it comes from its topic."""
    return Delivery(
        partition=Partition("g.tasks", "id", 3, 1),
        offset=41,
        timestamp_ms=1_700,
        publication=PUBLICATION,
        value=b"{}",
        digest=b"digest",
        route="default",
    )


def test_a_new_delivery_is_asked_about_and_has_no_claim() -> None:
    """No call may begin for it."""
    delivery = delivered()

    assert delivery.state is DeliveryState.ASKING
    assert not delivery.may_call(0.0)
    assert not delivery.suspect
    assert not delivery.runs_alone
    assert delivery.spent == Spent()


def test_a_delivery_states_its_task_and_its_record() -> None:
    """The ledger compares the digest with the stored bytes."""
    delivery = delivered()

    assert delivery.task_id == 7
    assert delivery.claimable() == Claimable(PUBLICATION, b"digest")
    assert delivery.origin() == ("g.tasks", 3, 41, 1_700)


def test_a_call_may_begin_while_the_lease_is_good() -> None:
    """The lease of its own claim counts, not the newest one."""
    delivery = claimed(1, 100.0)

    assert delivery.may_call(100.0)
    delivery.lease = Lease(1, -1000.0)
    assert not delivery.may_call(100.0)


def test_a_task_over_which_two_agents_were_lost_is_a_suspect() -> None:
    """Three losses make it run alone."""
    losses = [claimed(1, 0.0, lease_losses=count) for count in range(4)]

    assert [(loss.suspect, loss.runs_alone) for loss in losses] == [
        (False, False),
        (False, False),
        (True, False),
        (True, True),
    ]

"""A lease in memory: good for a while, never revived, and each owner number given once."""

import pytest

from docllm.agent.lease import CLAIMS_PER_INCARNATION, HEARTBEAT_MAX_AGE_S, Lease
from docllm.agent.ledger.leases.leasing import HEARTBEAT_S, LOST_AFTER_S
from docllm.schemas.task.owner import agent_of


def test_a_lease_is_fresh_for_nine_seconds() -> None:
    """Claims and calls may begin until 9 s after the last confirmed heartbeat."""
    lease = Lease(7, 100.0)

    assert lease.may_claim(100.0 + HEARTBEAT_MAX_AGE_S)
    assert lease.may_call(100.0 + HEARTBEAT_MAX_AGE_S)
    assert not lease.may_claim(100.1 + HEARTBEAT_MAX_AGE_S)
    assert not lease.may_call(100.1 + HEARTBEAT_MAX_AGE_S)


@pytest.mark.parametrize("flag", ["is_lost", "was_late"])
def test_a_lease_that_was_lost_or_late_never_allows_a_claim_again(flag: str) -> None:
    """No later heartbeat makes a lost or late lease allow new claims."""
    lease = Lease(7, 100.0)
    setattr(lease, flag, True)
    lease.beaten_at_s = 200.0

    assert not lease.may_claim(200.0)


def test_claimed_tasks_go_on_under_a_late_lease_but_not_under_a_lost_one() -> None:
    """Tasks of a late lease may go on once its heartbeat is confirmed; those of a lost one not.

    The ledger confirmed that the late lease had not been taken away.
    """
    lease = Lease(7, 100.0, was_late=True)
    assert lease.may_call(100.0)

    lease.is_lost = True

    assert not lease.may_call(100.0)


def test_a_lease_whose_numbers_are_used_up_allows_no_claim() -> None:
    """A lease whose owner numbers are used up allows no claim.

    It ends long before its numbers would reach the next agent's.
    """
    lease = Lease(7, 0.0)
    lease.claims = CLAIMS_PER_INCARNATION - 1
    assert lease.may_claim(0.0)

    last = lease.next_owner()

    assert not lease.may_claim(0.0)
    assert agent_of(last) == 7


def test_a_lease_is_over_for_its_agent_before_others_may_end_it() -> None:
    """A lease ends for its own agent at least one heartbeat before others may end it.

    Clocks differ in their pace, and a call that began in the last moment must be seen to run.
    """
    assert HEARTBEAT_MAX_AGE_S + HEARTBEAT_S <= LOST_AFTER_S

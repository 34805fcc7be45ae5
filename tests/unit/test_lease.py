"""A lease in memory is good for a while, gives each owner number once, and is never revived."""

import pytest

from agent.lease import CLAIMS_PER_INCARNATION, FRESH_S, OWNER_BITS, Lease
from agent.ledger.lease import DEAD_AFTER_S, HEARTBEAT_S


def test_a_lease_is_fresh_for_nine_seconds() -> None:
    """A claim may be made, and a call may begin, until 9 s after the last beat that was confirmed."""
    lease = Lease(7, 100.0)

    assert lease.fresh(100.0 + FRESH_S)
    assert lease.good(100.0 + FRESH_S)
    assert not lease.fresh(100.1 + FRESH_S)
    assert not lease.good(100.1 + FRESH_S)


@pytest.mark.parametrize("flag", ["lost", "late"])
def test_a_lease_that_was_lost_or_late_is_never_fresh_again(flag: str) -> None:
    """No later beat makes it good for new claims."""
    lease = Lease(7, 100.0)
    setattr(lease, flag, True)
    lease.beaten_s = 200.0

    assert not lease.fresh(200.0)


def test_what_was_claimed_may_go_on_when_a_late_lease_beats_again_but_not_under_a_lost_one() -> None:
    """The ledger confirmed that the late one had not been taken away; of the lost one it said that it was."""
    lease = Lease(7, 100.0, late=True)
    assert lease.good(100.0)

    lease.lost = True

    assert not lease.good(100.0)


def test_owner_numbers_name_their_incarnation_and_never_repeat() -> None:
    """The high bits are the agent, the low bits count its claim calls, beginning with 1: 0 is nobody."""
    lease = Lease(7, 0.0)

    owners = [lease.next_owner() for _ in range(1000)]

    assert owners[0] == 7 << OWNER_BITS | 1
    assert len(set(owners)) == 1000
    assert {owner >> OWNER_BITS for owner in owners} == {7}


def test_a_lease_whose_numbers_are_used_up_is_not_fresh() -> None:
    """The incarnation ends long before its numbers would run into the next agent's."""
    lease = Lease(7, 0.0)
    lease.claims = CLAIMS_PER_INCARNATION - 1
    assert lease.fresh(0.0)

    last = lease.next_owner()

    assert not lease.fresh(0.0)
    assert last >> OWNER_BITS == 7


def test_a_lease_is_over_for_its_agent_before_others_may_end_it() -> None:
    """By a heartbeat at least: clocks differ in their pace, and a call that was begun in the last moment must be seen to run."""
    assert FRESH_S + HEARTBEAT_S <= DEAD_AFTER_S

"""Partition assignment: balanced, sticky, and the same everywhere."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from docllm.producer.bus.embedded.group import AssignablePartition, balance

MEMBERS = [f"m{n}" for n in range(5)]


def _partitions(holders: list[str | None]) -> list[AssignablePartition]:
    return [AssignablePartition(number, "topic", holder) for number, holder in enumerate(holders)]


@given(st.lists(st.sampled_from([*MEMBERS, None])), st.sets(st.sampled_from(MEMBERS), min_size=1))
def test_loads_differ_by_one_at_most(holders: list[str | None], living: set[str]) -> None:
    """Living members end with loads that differ by at most one, whoever held which partition.

    No partition is left over.
    """
    heirs = balance(_partitions(holders), {member: {"topic"} for member in living})

    loads = Counter(dict.fromkeys(living, 0))
    loads.update(str(heir) for heir in heirs.values())
    assert set(heirs.values()) <= living
    assert max(loads.values()) - min(loads.values()) <= 1


@given(st.lists(st.sampled_from([*MEMBERS, None])), st.sets(st.sampled_from(MEMBERS), min_size=1))
def test_balance_is_stable(holders: list[str | None], living: set[str]) -> None:
    """A balanced assignment does not change."""
    subscriptions = {member: {"topic"} for member in living}
    once = balance(_partitions(holders), subscriptions)

    assert balance(_partitions(list(once.values())), subscriptions) == once


def test_new_member_takes_only_its_share() -> None:
    """A third member gets four of twelve partitions; the other eight do not move."""
    before: list[str | None] = [*["m0"] * 6, *["m1"] * 6]

    heirs = balance(_partitions(before), {member: {"topic"} for member in ("m0", "m1", "m2")})

    moved = [number for number, heir in heirs.items() if heir != before[number]]
    assert {heirs[number] for number in moved} == {"m2"}
    assert len(moved) == 4


def test_topic_goes_to_its_subscribers_only() -> None:
    """Only subscribers get a topic's partitions; without a subscriber there is no heir."""
    partitions = [
        AssignablePartition(1, "a", "m0"),
        AssignablePartition(2, "b", None),
        AssignablePartition(3, "c", "m0"),
    ]

    assert balance(partitions, {"m0": {"a"}, "m1": {"a", "b"}}) == {1: "m0", 2: "m1", 3: None}

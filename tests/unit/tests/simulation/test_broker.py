"""The simulated broker: whose work is left, and who owns what."""

import random

from tests.simulation.broker import Broker


def test_a_foreign_commit_does_not_end_the_owners_work() -> None:
    """A foreign commit does not end the owner's work.

    An owner that has yet to reach that offset has work left, and none once it has.
    """
    # Protects nothing.
    broker = Broker(rng=random.Random(1), utc_s=lambda: 0.0, turn=lambda: 0)  # noqa: S311
    broker.create("t", 1)
    group = broker.group("g")
    group.take(("t", 0), "owner")

    group.commit(("t", 0), 3, "stranger")
    before = group.ahead()
    group.commit(("t", 0), 3, "owner")

    assert before == 1
    assert group.ahead() == 0


def test_a_new_owner_that_begins_at_a_foreign_commit_is_not_behind() -> None:
    """A new owner that begins at a foreign commit is not behind it."""
    # Protects nothing.
    broker = Broker(rng=random.Random(1), utc_s=lambda: 0.0, turn=lambda: 0)  # noqa: S311
    broker.create("t", 1)
    group = broker.group("g")

    group.commit(("t", 0), 3, "stranger")
    group.take(("t", 0), "owner")

    assert group.ahead() == 0


def test_a_topic_that_is_created_again_gets_owners() -> None:
    """A recreated topic is assigned, even if no member noticed that it was gone."""
    # Protects nothing.
    broker = Broker(rng=random.Random(1), utc_s=lambda: 0.0, turn=lambda: 0)  # noqa: S311
    broker.create("t", 1)
    group = broker.group("g")
    member = group.join(frozenset({"t"}), 0.0)
    broker.delete("t")

    broker.create("t", 1)

    assert group.heir == {("t", 0): member}

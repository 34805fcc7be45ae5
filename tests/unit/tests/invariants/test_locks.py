"""The checker of locks."""

from tests.invariants.evidence import Evidence
from tests.invariants.happened import LockUse
from tests.invariants.locks import used_by_two


def used(*uses: tuple[str, int]) -> list[str]:
    lock_uses = [LockUse(name, fence, 1.5, "agent-1") for name, fence in uses]
    return used_by_two(Evidence(loaded=frozenset(), tasks=(), lock_uses=lock_uses))


def test_holders_come_one_after_the_other() -> None:
    """A holder may use its lock again and again; other locks have other numbers."""
    assert used(("a", 5), ("b", 3), ("a", 5), ("a", 6), ("b", 4)) == []


def test_a_holder_after_its_successor_is_named() -> None:
    """Each use is named that comes too late."""
    assert used(("a", 5), ("a", 6), ("a", 5), ("a", 7)) == [
        "a by agent-1 at 1.500: with fence 5, after 6"
    ]

"""The checker of results outside the ledger finds each way to lose one."""

from tests.invariants.evidence import Evidence
from tests.invariants.outputs import overwritten, pointing_nowhere


def test_a_lost_and_an_overwritten_object_are_named() -> None:
    """A run without either says nothing."""
    clean = Evidence(loaded=frozenset(), tasks=())
    broken = Evidence(
        loaded=frozenset(), tasks=(), lost_outputs=[(7, "missing")], overwritten=["s3://b/x"]
    )

    assert pointing_nowhere(clean) == overwritten(clean) == []
    assert pointing_nowhere(broken) == ["the output of task 7 is missing"]
    assert overwritten(broken) == ["s3://b/x was overwritten"]

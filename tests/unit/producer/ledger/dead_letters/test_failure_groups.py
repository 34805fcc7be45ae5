"""Groups of failures from which dead letters at the cap of replays are taken."""

from datetime import datetime
from types import SimpleNamespace
from typing import Any

from docllm.producer.ledger.dead_letters.failure_groups import FailureGroup, TotalCost, without
from docllm.producer.ledger.tally import OTHER_FINGERPRINTS

OWN = b"\x01" * 16
AT = datetime(2026, 11, 24)  # noqa: DTZ001 - the ledger's times are UTC without a zone


def group(fingerprint: bytes, dead: int) -> FailureGroup:
    spent = TotalCost(dead, 0, 0, 10 * dead, dead)
    return FailureGroup(
        batch_id=1,
        batch_ended=False,
        fingerprint=fingerprint,
        disposition="permanent",
        error_class="SERVER",
        dead=dead,
        first_at=AT,
        last_at=AT,
        spent=spent,
    )


def letter() -> Any:
    key = {"batch_id": 1, "fingerprint": OWN, "disposition": "permanent"}
    return SimpleNamespace(**key, attempts=1, tokens_in=0, tokens_out=0, cost_micro=10, unpriced=1)


def test_letters_leave_the_group_of_their_fingerprint() -> None:
    """The number and the cost of replayed letters leave their group."""
    (left,) = without([group(OWN, 3)], [letter(), letter()])

    assert (left.dead, left.spent) == (1, TotalCost(1, 0, 0, 10, 1))


def test_letters_beyond_their_own_group_leave_the_other_errors() -> None:
    """Older deaths of a fingerprint may be counted there, while a fresh one has its own group."""
    (left,) = without([group(OWN, 1), group(OTHER_FINGERPRINTS, 5)], [letter()] * 3)

    assert (left.fingerprint, left.dead, left.spent.cost_micro) == (OTHER_FINGERPRINTS, 3, 30)

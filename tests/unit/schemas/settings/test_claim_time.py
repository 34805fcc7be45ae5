"""The parts of a claim's time fit into each other."""

from docllm.schemas.settings.claim_time import (
    CLAIM_MARGIN_S,
    HANDLER_GRACE_S,
    SETTLE_MARGIN_S,
    claim_s,
    usual_limit_s,
)
from docllm.schemas.settings.config import TypeConfig


def test_a_call_with_the_longest_limit_fits_into_its_claim() -> None:
    """A claim leaves a call all its time, even if the call begins some seconds after the claim."""
    assert SETTLE_MARGIN_S < CLAIM_MARGIN_S


def test_a_handler_ends_before_others_may_take_its_task() -> None:
    """What a handler has more than its calls is only a part of the time for the settle."""
    assert HANDLER_GRACE_S < SETTLE_MARGIN_S


def test_a_types_longer_limit_makes_claims_longer_but_not_other_handlers() -> None:
    """The long attempt fits into the claim; a handler without a limit still hangs no longer."""
    types = [TypeConfig(), TypeConfig(time_limit_s=3600)]

    assert claim_s(600, types) == 3600 + CLAIM_MARGIN_S
    assert claim_s(600, [TypeConfig(time_limit_s=5)]) == claim_s(600, []) == 600 + CLAIM_MARGIN_S
    assert usual_limit_s(600) < claim_s(600, [])

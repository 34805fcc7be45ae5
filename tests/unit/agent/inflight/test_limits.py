"""The limits of one agent agree with each other and with those of the servers."""

from docllm.agent.inflight.limits import InFlightLimits
from docllm.schemas.ledger.database import MIN_PACKET_BYTES


def test_a_partition_is_read_again_only_below_its_span() -> None:
    """Equal limits would pause and resume a partition at each record."""
    limits = InFlightLimits()

    assert 0 < limits.resume_span < limits.span
    assert 0 < limits.stuck_share < limits.finished_share < 1


def test_a_step_is_smaller_than_what_may_wait() -> None:
    """One step never takes an agent from empty to over its limit."""
    limits = InFlightLimits()

    assert limits.page <= limits.ready
    assert limits.quarantine_page <= limits.rejected
    assert limits.quarantine_page_bytes < limits.bodies_bytes
    assert limits.inbox_page < limits.inbox_records
    assert limits.inbox_page_bytes < limits.inbox_bytes


def test_a_group_of_outcomes_fits_a_statement() -> None:
    """Bodies travel as hexadecimal digits, twice as long as their bytes."""
    assert 2 * InFlightLimits().settle_page_bytes < MIN_PACKET_BYTES

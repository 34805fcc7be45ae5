"""The limits that the rehearsal LLM enforces, in simulated time."""

import pytest

from docllm.agent.llm.rehearsal.provider_limits import OverLimit, ProviderLimits, RehearsedCall
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.quota import ChargeRule, QuotaLimits


class FakeClock(SystemClock):
    def __init__(self) -> None:
        self._now_s = 1000.0

    def now_s(self) -> float:
        return self._now_s

    def advance(self, step_s: float) -> None:
        self._now_s += step_s


CALL = RehearsedCall(tokens_in=40, most_out=60, tokens_out=20)


def limits(clock: FakeClock, **given: object) -> ProviderLimits:
    return ProviderLimits(limits=QuotaLimits(**given), window_s=6.0, clock=clock)  # type: ignore[arg-type]


def test_requests_fill_evenly() -> None:
    """Of 60 a minute, those of six seconds may come at once; then one comes each second."""
    clock = FakeClock()
    server = limits(clock, rpm=60)

    assert [server.begin(CALL) for _ in range(7)] == [None] * 6 + [OverLimit("rpm", 1.0)]
    clock.advance(1.0)
    assert server.begin(CALL) is None
    assert server.begin(CALL) == OverLimit("rpm", 1.0)


@pytest.mark.parametrize(
    ("charge", "left_at_begin", "left_at_end"),
    [
        (ChargeRule.MAX_THEN_REFUND, 900, 940),
        (ChargeRule.MAX_KEPT, 900, 900),
        (ChargeRule.INPUT_THEN_OUTPUT, 960, 940),
    ],
)
def test_tokens_are_charged_by_the_rule(
    charge: ChargeRule, left_at_begin: int, left_at_end: int
) -> None:
    """The headers say what is left of the limit."""
    server = limits(FakeClock(), tpm=10_000, charge=charge)
    header = "x-ratelimit-remaining-tokens"

    server.begin(CALL)
    at_begin = server.headers()[header]
    server.end(CALL)

    assert at_begin == str(left_at_begin * 10)
    assert server.headers()[header] == str(left_at_end * 10)


def test_a_call_larger_than_the_bucket_needs_a_full_one() -> None:
    """Such a call leaves a debt, which later calls wait for."""
    clock = FakeClock()
    server = limits(clock, tpm=600)

    assert server.begin(CALL) is None
    assert server.begin(CALL) == OverLimit("tpm", 10.0)
    clock.advance(9.0)
    assert server.begin(CALL) == OverLimit("tpm", 1.0)
    clock.advance(1.0)
    assert server.begin(CALL) is None


def test_calls_at_once_are_counted() -> None:
    """A refused call is not counted and costs nothing."""
    server = limits(FakeClock(), in_flight=1, rpm=60)

    assert server.begin(CALL) is None
    assert server.begin(CALL) == OverLimit("in_flight", 1.0)
    assert server.headers()["x-ratelimit-remaining-requests"] == "50"
    server.end(CALL)
    assert server.begin(CALL) is None

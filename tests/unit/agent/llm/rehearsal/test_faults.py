"""The faults that a person configures, and their draw."""

from collections import Counter

import pytest

from docllm.agent.llm.rehearsal import faults
from docllm.agent.llm.rehearsal.faults import Faults
from docllm.schemas.errors import ConfigError


def test_faults_are_read_as_they_are_written() -> None:
    """A fault option has shares and settings, and reads back as the same mapping."""
    read = faults.parse("429=0.05, hang=0.01,retry_after=2")

    assert read == Faults({"429": 0.05, "hang": 0.01}, retry_after=2.0)
    assert faults.read_faults(read.as_mapping()) == read
    assert faults.parse("") == Faults()


@pytest.mark.parametrize(
    "text", ["hangs=0.1", "429", "429=x", "429=-1", "429=nan", "99=0.1", "429=0.6,500=0.6", "=1"]
)
def test_invalid_faults_are_refused(text: str) -> None:
    """Impossible faults are refused."""
    with pytest.raises(ConfigError):
        faults.parse(text)


def test_the_shares_of_faults_are_kept() -> None:
    """Over many calls, each fault occurs as often as requested."""
    dialed = faults.parse("429=0.1,hang=0.02")
    drawn = Counter(dialed.pick(faults.draw(1, f"b/{number}", 1)[0]) for number in range(10_000))

    assert 900 < drawn["429"] < 1100
    assert 150 < drawn["hang"] < 250


def test_the_same_call_has_the_same_fault_and_a_repeated_one_another() -> None:
    """The draw depends on seed, request and number of the call, not on the order of arrival."""
    draws = {faults.draw(seed, name, nth) for seed in (1, 2) for name in "ab" for nth in (1, 2)}

    assert len(draws) == 8
    assert faults.draw(1, "a", 1) in draws

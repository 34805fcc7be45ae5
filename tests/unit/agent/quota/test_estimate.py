"""Estimates of what calls will be charged."""

import pytest

from docllm.agent.quota.estimate import (
    FIRST_OUT,
    MAX_KINDS,
    CallSize,
    Estimates,
    actual_charge,
)
from docllm.agent.quota.grants import Charge
from docllm.schemas.settings.quota import ChargeRule, QuotaLimits
from docllm.schemas.task.record.hints import most_out

NONE = QuotaLimits()
KEPT = QuotaLimits(charge=ChargeRule.MAX_KEPT)
LATER = QuotaLimits(charge=ChargeRule.INPUT_THEN_OUTPUT)


def test_an_unknown_kind_is_estimated_by_its_bytes() -> None:
    """Four bytes are a token; the answer is of a usual length."""
    assert Estimates().charge("a", CallSize(input_bytes=4000), NONE) == Charge(
        tokens_in=1000, tokens_out=FIRST_OUT
    )


def test_tokens_per_byte_are_learned_for_each_route_and_type() -> None:
    """Another type of task and another place of its document are other kinds."""
    estimates = Estimates()
    size = CallSize(task_type="invoice", input_bytes=1000)

    for tokens_in in (500, 510, 490):
        estimates.learn("a", size, tokens_in, 10)

    assert estimates.charge("a", size, NONE) == Charge(tokens_in=500, tokens_out=10)
    double = CallSize(task_type="invoice", input_bytes=2000)
    assert estimates.charge("a", double, NONE).tokens_in == 1000
    for other in ("letter", False), ("invoice", True):
        size = CallSize(task_type=other[0], input_bytes=1000, by_uri=other[1])
        assert estimates.charge("a", size, NONE).tokens_in == 250
    assert estimates.charge("b", CallSize(task_type="invoice"), NONE).tokens_out == FIRST_OUT


def test_a_nonsense_usage_is_forgotten_soon() -> None:
    """A gateway's one wrong reply does not make each later call look like a minute's tokens."""
    estimates = Estimates()
    size, limits = CallSize(input_bytes=400), QuotaLimits(tpm=20_000)
    estimates.learn("a", size, 2**31 - 1, 10)

    for _ in range(40):
        estimates.learn("a", size, 100, 10)

    assert estimates.charge("a", size, limits).tokens_in < 1000


def test_documents_elsewhere_are_learned_in_a_few_calls() -> None:
    """A prompt with a document from elsewhere has many more tokens than its line has bytes."""
    estimates = Estimates()
    size = CallSize(input_bytes=100, by_uri=True)

    for _ in range(4):
        estimates.learn("a", size, 100_000, 10)

    assert 60_000 < estimates.charge("a", size, NONE).tokens_in <= 100_000


def test_most_answers_fit_the_estimate() -> None:
    """Of a hundred lengths, the newest count, and the estimate is above most of them."""
    estimates = Estimates()
    for tokens_out in (9000, *range(1, 101)):
        estimates.learn("a", CallSize(), 10, tokens_out)

    assert estimates.charge("a", CallSize(), NONE).tokens_out == 84


@pytest.mark.parametrize(
    ("limits", "reserved", "charged"), [(NONE, 800, 50), (KEPT, 800, 800), (LATER, 50, 50)]
)
def test_the_longest_answer_counts_as_the_provider_counts_it(
    limits: QuotaLimits, reserved: int, charged: int
) -> None:
    """The longest answer is reserved, and given back unless the provider keeps it."""
    estimates = Estimates()
    size = CallSize(most_out=800)
    estimates.learn("a", size, 10, 50)

    assert estimates.charge("a", size, limits).tokens_out == reserved
    assert actual_charge(size, limits, 10, 50) == Charge(tokens_in=10, tokens_out=charged)


@pytest.mark.parametrize(
    ("limits", "charge"),
    [
        (QuotaLimits(tpm=1200), Charge(tokens_in=1000, tokens_out=200)),
        (QuotaLimits(tpm=600), Charge(tokens_in=600, tokens_out=0)),
        (QuotaLimits(itpm=100, otpm=50), Charge(tokens_in=100, tokens_out=50)),
    ],
)
def test_an_estimate_is_at_most_what_a_minute_allows(limits: QuotaLimits, charge: Charge) -> None:
    """A task that seems larger would never run."""
    assert Estimates().charge("a", CallSize(input_bytes=4000), limits) == charge


def test_the_tokens_of_a_byte_are_learned_for_each_kind() -> None:
    """The first call of a kind says more than the usual four bytes a token."""
    estimates = Estimates()
    estimates.learn("a", CallSize(task_type="t", input_bytes=1000), 500, 1)

    assert estimates.tokens_per_byte("a", "t") == 0.5
    assert estimates.tokens_per_byte("a", "other") == 0.25
    assert estimates.tokens_per_byte("b", "t") == 0.25


def test_kinds_are_bounded() -> None:
    """Tasks name models, and each makes a route."""
    estimates = Estimates()
    for number in range(MAX_KINDS + 1):
        estimates.learn(str(number), CallSize(input_bytes=100), 100, 1)

    assert estimates.charge("0", CallSize(input_bytes=100), NONE).tokens_in == 25
    assert estimates.charge("1", CallSize(input_bytes=100), NONE).tokens_in == 100


@pytest.mark.parametrize(
    ("params", "most"),
    [
        ({}, None),
        ({"max_tokens": 100}, 100),
        ({"max_tokens": 100, "max_completion_tokens": 200, "n": 3}, 600),
        ({"max_tokens": "many"}, None),
        ({"max_tokens": True}, None),
        ({"max_tokens": 5, "n": 10**9}, 5),
    ],
)
def test_the_longest_answer_of_a_request(params: dict[str, object], most: int | None) -> None:
    """What is no number says nothing; nobody checked these parameters."""
    assert most_out(params) == most

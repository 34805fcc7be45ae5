"""The estimate before a load."""

import orjson

from producer.estimate import Estimate
from producer.lines import Good, read_line
from schemas.config import Price


def task(**fields: object) -> Good:
    line = read_line(1, orjson.dumps({"id": "a", "prompt": "x" * 400} | fields))
    assert isinstance(line, Good)
    return line


def test_four_bytes_are_a_token_and_a_file_counts_with_its_size() -> None:
    """The line's bytes and the size of a document named by URI make the input; prices apply by model."""
    estimate = Estimate(prices={"m": Price(2.0, 8.0)}, default_model="m")
    line = task(prompt="{document}", input={"uri": "file:///a", "size": 4_000_000})

    estimate.add(line)

    assert estimate.tokens_in == (len(line.value) + 4_000_000) // 4
    assert round(estimate.cost, 3) == round(estimate.tokens_in * 2 / 1e6, 3)
    assert estimate.tasks == 1


def test_it_says_that_it_is_an_estimate_and_what_has_no_price() -> None:
    """A model without a price is named instead of being counted as free."""
    estimate = Estimate(prices={"m": Price(2.0, 8.0)}, default_model=None)

    for line in (task(model="m"), task(model="n"), task()):
        estimate.add(line)

    assert str(estimate).startswith("about 3 tasks, ")
    assert "estimated: 4 bytes a token" in str(estimate)
    assert str(estimate).endswith("the answers come on top; no price is configured for n, the default model")


def test_without_prices_no_price_is_said() -> None:
    """No price table, no number that looks like money."""
    estimate = Estimate(prices={}, default_model="m")
    estimate.add(task())

    assert "for the input" not in str(estimate)

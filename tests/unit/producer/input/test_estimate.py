"""The estimate before a load."""

import orjson
import pytest

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.estimate import Estimate
from docllm.producer.input.lines import ValidLine, read_line
from docllm.schemas.settings.config import Config, LLMConfig, Price, RouteConfig, TypeConfig


def task(**fields: object) -> ValidLine:
    line = read_line(1, orjson.dumps({"id": "a", "prompt": "x" * 400} | fields))
    assert isinstance(line, ValidLine)
    return line


def test_four_bytes_are_a_token_and_a_file_counts_with_its_size() -> None:
    """Four bytes are a token; a document named by URI counts with its size.

    Prices apply by model.
    """
    estimate = Estimate(
        TaskAccounts(Config(prices={"m": Price(2.0, 8.0)}, llm=LLMConfig(model="m")))
    )
    line = task(prompt="{document}", input={"uri": "file:///a", "size": 4_000_000})

    estimate.add(line)

    assert estimate.tokens_in == (len("{document}") + 4_000_000) // 4
    assert round(estimate.cost, 3) == round(estimate.tokens_in * 2 / 1e6, 3)
    assert estimate.tasks == 1


def test_an_estimate_names_itself_and_the_models_without_a_price() -> None:
    """A model without a price is named, and does not count as free."""
    estimate = Estimate(TaskAccounts(Config(prices={"m": Price(2.0, 8.0)})))

    for line in (task(model="m"), task(model="n"), task()):
        estimate.add(line)

    assert str(estimate).startswith("about 3 tasks, ")
    assert "estimated: 4 bytes a token" in str(estimate)
    assert str(estimate).endswith(
        "the answers come on top; no price is configured for n, the default model "
        '(set [prices."n"])'
    )


def test_a_price_under_an_almost_equal_name_is_named() -> None:
    """A slip in the name of a price is the usual reason why a model has none."""
    estimate = Estimate(TaskAccounts(Config(prices={"gpt4.1": Price(2.0, 8.0), "m": Price()})))

    estimate.add(task(model="gpt-4.1"))

    assert 'for gpt-4.1 (set [prices."gpt-4.1"]; there is one for gpt4.1)' in str(estimate)


def test_an_estimate_without_prices_shows_no_money() -> None:
    """Without a price table, nothing that looks like money is shown."""
    estimate = Estimate(TaskAccounts(Config(llm=LLMConfig(model="m"))))
    estimate.add(task())

    assert "for the input" not in str(estimate)


def test_a_line_without_a_model_costs_what_the_route_of_its_type_costs() -> None:
    """A line without a model has the price of its type's route, which agents would ask.

    A type may have a route of its own, and the default route a model of its own.
    """
    accounts = TaskAccounts(
        Config(
            prices={"cheap": Price(1.0, 1.0), "dear": Price(1000.0, 1.0), "named": Price(0.0, 0.0)},
            llm=LLMConfig(model="not-asked"),
            routes={"default": RouteConfig(model="cheap"), "archive": RouteConfig(model="dear")},
            types={"invoice": TypeConfig(route="archive"), "letter": TypeConfig(max_attempts=1)},
        )
    )
    estimate = Estimate(accounts)
    lines = [task(type="invoice"), task(type="letter"), task(), task(type="invoice", model="named")]

    for line in lines:
        estimate.add(line)

    dear, *cheap = (line.input_bytes for line in lines[:3])
    assert round(estimate.cost, 6) == round((dear // 4 * 1000 + sum(cheap) // 4) / 1e6, 6)
    assert "no price" not in str(estimate)


def test_limits_of_the_answers_give_the_upper_end() -> None:
    """The longest answers at full price; one task without a limit leaves it open."""
    config = Config(prices={"m": Price(2.0, 8.0)}, llm=LLMConfig(model="m"))
    estimate = Estimate(TaskAccounts(config))
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 100}
    request = {"custom_id": "b", "method": "POST", "url": "/v1/chat/completions", "body": body}
    line = read_line(2, orjson.dumps(request))
    assert isinstance(line, ValidLine)
    for each in (task(params={"max_completion_tokens": 1000, "n": 2}), line):
        estimate.add(each)

    assert estimate.tokens_out_most == 2100
    assert estimate.cost_most == pytest.approx(estimate.cost + 2100 * 8 / 1e6)
    assert f"at most {estimate.cost_most:.4f} with the longest answers" in str(estimate)
    estimate.scale(20)
    assert estimate.tokens_out_most == 21_000
    estimate.add(task())
    assert estimate.as_json()["cost_most"] is None
    assert "the answers come on top" in str(estimate)


@pytest.mark.parametrize("type_name", ["map-reduce", "own"])
def test_a_handler_may_make_any_number_of_calls(type_name: str) -> None:
    """A limit of one answer bounds nothing there."""
    config = Config(types={"own": TypeConfig(handler="m:f")})
    estimate = Estimate(TaskAccounts(config))

    estimate.add(task(type=type_name, params={"max_tokens": 1}))

    assert estimate.tokens_out_most is None

"""A large batch whose prompt loses the providers' caches is warned about, with what it costs."""

import orjson
import pytest

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.lines import ValidLine, read_line
from docllm.producer.input.load_warnings import LARGE, PromptOrder, lost_bytes
from docllm.schemas.settings.config import Config, LLMConfig, Price, TypeConfig

RULES = "Follow this rule. " * 300  # 5,400 bytes
CONFIG = Config(
    llm=LLMConfig(base_url="http://h/v1", model="mini"),
    types={
        "invoice": TypeConfig(prompt="{document}" + RULES),
        "mine": TypeConfig(handler="a:b"),
    },
)


def line(prompt: str | None = "{document}" + RULES, **fields: object) -> ValidLine:
    task = {"id": "a", "input": {"text": "x"}} | ({} if prompt is None else {"prompt": prompt})
    made = read_line(1, orjson.dumps(task | fields))
    assert isinstance(made, ValidLine)
    return made


def warned(made: ValidLine, tasks: int = LARGE, config: Config = CONFIG) -> str:
    order = PromptOrder(TaskAccounts(config))
    for _ in range(tasks):
        order.add(made)
    return str(order)


def test_the_warning_says_how_many_tokens_no_cache_can_have() -> None:
    """The tokens are estimated from the prompt's bytes, times the tasks."""
    said = warned(line(), 1000)

    assert said == (
        "{document} is not last in the prompt of 1,000 tasks, so no prompt cache of a provider can "
        "have what comes after it: about 1,350,000 input tokens of all tasks, which would cost "
        "less from a cache; move {document} to the end of the prompt"
    )


def test_with_a_price_it_says_what_they_cost() -> None:
    """No discount is guessed: each provider has its own."""
    config = Config(llm=CONFIG.llm, prices={"mini": Price(2.0, 8.0)})

    assert "tokens of all tasks (2.7000 at the full price), which" in warned(line(), 1000, config)
    assert "full price" not in warned(line(model="other"), 1000, config)


@pytest.mark.parametrize(
    "prompt",
    [
        RULES + "{document}",
        RULES + "{document}\n\n",
        "{document} " + RULES[:3000],
        "Summarize: {document}",
        RULES,
    ],
)
def test_a_prompt_that_loses_nothing_is_no_reason(prompt: str) -> None:
    """The document is last, or the rest is too short for any cache."""
    assert lost_bytes(prompt) == 0


def test_only_what_is_cached_later_is_lost() -> None:
    """A long beginning is cached already."""
    assert lost_bytes(RULES + "{document}" + "End. " * 10) == 50
    assert lost_bytes("Begin. {document}" + RULES) == len("Begin. " + RULES)


def test_a_small_batch_and_other_prompts_are_no_reason() -> None:
    """A cache saves little there. Handlers make of a prompt what they like."""
    assert warned(line(), LARGE - 1) == ""
    assert warned(line(type="mine")) == ""
    order = PromptOrder(TaskAccounts(CONFIG))
    for number in range(2 * LARGE):
        order.add(line("{document}" + RULES + str(number)))
    assert str(order) == ""


def test_the_prompt_of_a_type_counts() -> None:
    """The type's prompt is that of each of its tasks without one."""
    assert f"of {LARGE} tasks" in warned(line(None, type="invoice"))


def test_any_number_of_prompts_is_read() -> None:
    """Few are remembered, the newest of them."""
    order = PromptOrder(TaskAccounts(CONFIG))
    for number in range(1100):
        order.add(line(str(number) + "{document}" + RULES))

    assert len(order._prompts) == 1000

"""What a route inherits from `[llm]`."""

import pytest

from docllm.schemas.settings.account import account
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig, Structured

CONFIG = Config(
    llm=LLMConfig(base_url="http://main/v1", model="mini", context_tokens=8_000),
    routes={
        "mini": RouteConfig(timeout_s=5.0),
        "large": RouteConfig(context_tokens=128_000),
        "other": RouteConfig(),
        "elsewhere": RouteConfig(base_url="http://local/v1", model="mini"),
    },
)


@pytest.mark.parametrize(
    ("route", "context_tokens"),
    [("default", 8_000), ("mini", 8_000), ("large", 128_000), ("other", None), ("elsewhere", None)],
)
def test_the_size_of_a_context_holds_for_its_model_alone(
    route: str, context_tokens: int | None
) -> None:
    """Another model takes more or less, and another server may run the same model with less."""
    assert account(CONFIG, route).context_tokens == context_tokens


def test_the_form_of_a_schema_belongs_to_the_server() -> None:
    """A route at another address starts from the default form."""
    config = Config(
        llm=LLMConfig(base_url="http://main/v1", structured=Structured.NONE),
        routes={
            "same": RouteConfig(),
            "own": RouteConfig(structured=Structured.JSON_OBJECT),
            "elsewhere": RouteConfig(base_url="http://local/v1"),
        },
    )

    forms = {name: account(config, name).structured for name in ("default", *config.routes)}

    assert forms == {
        "default": "none",
        "same": "none",
        "own": "json_object",
        "elsewhere": "json_schema",
    }

"""Every LLM answers the tests of `check`, and is remembered."""

import pytest

from docllm.producer.checks import llm as check_llm
from docllm.schemas.settings.config import LLMConfig


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[LLMConfig]:
    """Collect every LLM that is asked; all of them answer."""
    configs: list[LLMConfig] = []

    async def ask(llm: LLMConfig, _route: str | None = None) -> str:
        configs.append(llm)
        return "answers"

    monkeypatch.setattr(check_llm, "ask", ask)
    return configs

"""`check --llm` asks each account once."""

from pathlib import Path
from typing import Any

import pytest

from docllm.schemas.settings.config import LLMConfig
from tests.unit.producer.checks.test_checklist import LLM, check, configured


def test_each_account_is_asked_once(
    tmp_path: Path, asked: list[LLMConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each account is asked once, in the way agents would ask."""
    toml = (
        LLM
        + """
        [routes.same]
        model = "m"
        [routes.model]
        model = "m2"
        [routes.twin]
        model = "m2"
        [routes.key]
        api_key = "k2"
        model = "m"
        [routes.local]
        base_url = "http://two/v1"
        [types.a]
        route = "same"
        [types.b]
        route = "twin"
    """
    )

    assert check(configured(tmp_path, toml)) == 0

    names = [
        line.split(":")[0].split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()[4:]
    ]
    assert names == ["llm", "route key", "route local", "route model"]
    connections: list[Any] = [
        (llm.base_url, llm.api_key and llm.api_key.reveal(), llm.model) for llm in asked
    ]
    assert connections == [
        ("http://one/v1", "k1", "m"),
        ("http://one/v1", "k2", "m"),
        ("http://two/v1", None, "local"),
        ("http://one/v1", "k1", "m2"),
    ]


def test_routes_are_asked_and_the_missing_llm_is_reported(
    tmp_path: Path, asked: list[LLMConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    """Routes are asked and the missing LLM is reported, because an agent would not start.

    A route without an address of its own cannot be asked.
    """
    code = check(
        configured(
            tmp_path, "[routes.local]\nbase_url = 'http://two/v1'\n[routes.fast]\nmodel = 'm'\n"
        )
    )

    assert code == 2
    assert "FAILED  llm: no LLM is configured" in capsys.readouterr().out
    assert [llm.base_url for llm in asked] == ["http://two/v1"]

"""`check` creates nothing, ignores what agents can live without, and asks each account."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from producer.__main__ import _parser
from producer.app import opened
from producer.checks import checks
from producer.checks import llm as check_llm
from producer.cli import admin
from schemas.settings.config import Config, LLMConfig
from schemas.settings.sources import load_config

LLM = "[llm]\nbase_url = 'http://one/v1'\napi_key = 'k1'\nmodel = 'm'\n"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[LLMConfig]:
    """Collect every LLM that is asked; all of them answer."""
    found: list[LLMConfig] = []

    async def ask(llm: LLMConfig, _route: str | None = None) -> str:
        found.append(llm)
        return "answers"

    monkeypatch.setattr(check_llm, "ask", ask)
    return found


def configured(folder: Path, toml: str = LLM, **environ: str) -> Config:
    (folder / "docllm.toml").write_text(toml)
    return load_config(flags={}, environ=environ, cwd=folder)


def check(config: Config, *arguments: str) -> int:
    return asyncio.run(admin.check(config, _parser().parse_args(["check", *arguments])))


async def make(config: Config) -> None:
    async with opened(config, "docllm"):
        pass


@pytest.mark.usefixtures("asked")
def test_an_empty_folder_stays_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing embedded parts are reported, but are no failure.

    The first load or agent makes them.
    """
    code = check(configured(tmp_path))

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["docllm.toml"]
    assert [line.partition(":")[0] for line in lines] == [
        "ok      database",
        "ok      schema",
        "ok      bus",
        "ok      topics",
        "ok      llm",
    ]
    assert [line for line in lines[:4] if "the first load or agent creates" not in line] == []


@pytest.mark.usefixtures("asked")
def test_parts_that_are_there_are_tested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ledger without tables or without this group is to come.

    A ledger whose bus is gone is a failure, with advice.
    """
    config = configured(tmp_path)
    config.data_dir.mkdir()
    sqlite3.connect(config.data_dir / "ledger.sqlite").close()
    assert check(config) == 0

    asyncio.run(make(config))
    assert check(config) == 0
    assert check(config, "--group", "other") == 0
    assert capsys.readouterr().out.count("topics of group docllm are as they should be") == 1

    (config.data_dir / "bus.sqlite").unlink()
    assert check(config) == 4
    assert "topics apply --group docllm" in capsys.readouterr().out
    assert not (config.data_dir / "bus.sqlite").exists()


@pytest.mark.usefixtures("asked")
def test_the_topics_of_new_tiers_are_to_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing topics of new tiers are named; faults of existing topics are still failures."""
    asyncio.run(make(configured(tmp_path)))
    config = configured(tmp_path, DOCLLM_RETRY_TIERS="2s,30s")

    assert check(config) == 0
    assert (
        "ok      topics: docllm.retry.2s: not there yet; the next load or agent creates"
        in capsys.readouterr().out
    )

    (config.data_dir / "bus.sqlite").unlink()
    assert check(config) == 4


@pytest.mark.usefixtures("asked")
def test_an_error_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A test that needs a failed server is not tried.

    The same error used to appear three times, with topics failed "by database".
    """
    monkeypatch.setattr(checks.Checks, "_bus", lambda _self: asyncio.sleep(0, "cluster x"))
    config = configured(
        tmp_path,
        DOCLLM_KAFKA_BOOTSTRAP="127.0.0.1:1",
        DOCLLM_DATABASE_URL="mysql://u:secret@127.0.0.1:1/d",
    )

    code = check(config)

    lines = capsys.readouterr().out.splitlines()
    assert code == 3
    assert [line.partition(":")[0].split()[:2] for line in lines[:5]] == [
        ["FAILED", "database"],
        ["-", "schema"],
        ["-", "rights"],
        ["ok", "bus"],
        ["-", "topics"],
    ]
    assert lines[1] == "-       schema: not tried, because it needs what failed: database"
    assert lines[4] == "-       topics: not tried, because it needs what failed: database, schema"
    assert sum("127.0.0.1:1/d" in line for line in lines) == 1


@pytest.mark.usefixtures("asked")
def test_redis_that_is_away_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An absent Redis never changes the exit code, because agents run without it."""
    code = check(configured(tmp_path, DOCLLM_REDIS_URL="redis://127.0.0.1:1/0"))

    assert code == 0
    assert "WARNING redis: does not answer" in capsys.readouterr().out


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            RuntimeError("unable to perform operation on <TCPTransport closed=True>"),
            "WARNING redis: does not answer",
        ),
        # No Redis at that address.
        (
            AttributeError("'int' object has no attribute 'splitlines'"),
            "WARNING redis: does not answer",
        ),
        ({"os": "x"}, "ok      redis: version that it does not tell"),
    ],
)
def test_nothing_that_redis_does_ends_the_check(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: Any,
    said: str,
) -> None:
    """Nothing that Redis does ends the check: a broken connection, or whatever answers."""

    async def info(_client: object, _section: str) -> dict[str, str]:
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    async def refused(_client: object, _group: str) -> str:
        return ""

    monkeypatch.setattr(checks.Redis, "info", info)
    monkeypatch.setattr(checks.redis_rights, "refused", refused)

    assert check(configured(tmp_path, DOCLLM_REDIS_URL="redis://127.0.0.1:1/0")) == 0
    assert said in capsys.readouterr().out


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

    said = [
        line.split(":")[0].split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()[4:]
    ]
    assert said == ["llm", "route key", "route local", "route model"]
    found: list[Any] = [
        (llm.base_url, llm.api_key and llm.api_key.reveal(), llm.model) for llm in asked
    ]
    assert found == [
        ("http://one/v1", "k1", "m"),
        ("http://one/v1", "k2", "m"),
        ("http://two/v1", None, "local"),
        ("http://one/v1", "k1", "m2"),
    ]


def test_routes_alone_are_asked_and_the_missing_llm_is_told(
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

"""`check` creates nothing, and ignores what agents can live without."""

import asyncio
import sqlite3
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from sqlalchemy.exc import OperationalError

from docllm.producer.app import opened
from docllm.producer.checks import checklist, needs, redis_rights
from docllm.producer.cli import admin
from docllm.producer.cli.parser import parser
from docllm.schemas.errors import UnreachableError
from docllm.schemas.ledger import migrations
from docllm.schemas.ledger.database import Database
from docllm.schemas.settings.config import Config, KafkaConfig
from docllm.schemas.settings.sources import load_config

LLM = "[llm]\nbase_url = 'http://one/v1'\napi_key = 'k1'\nmodel = 'm'\n"


def configured(folder: Path, toml: str = LLM, **environ: str) -> Config:
    (folder / "docllm.toml").write_text(toml)
    return load_config(flags={}, environ=environ, cwd=folder)


def check(config: Config, *arguments: str) -> int:
    return asyncio.run(admin.check(config, parser().parse_args(["check", *arguments])))


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
def test_existing_parts_are_tested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
def test_an_error_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A test that needs a failed server is not tried.

    The same error used to appear three times, with topics failed "by database".
    """
    monkeypatch.setattr(checklist.Checks, "_bus", lambda _self: asyncio.sleep(0, "cluster x"))
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
@pytest.mark.parametrize(
    ("where", "what", "failed"),
    [(migrations, "ledger_id", "schema"), (checklist, "with_old_tiers", "topics")],
)
def test_a_database_that_goes_away_ends_the_check(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    where: Any,
    what: str,
    failed: str,
) -> None:
    """It answered the first check, then no more: the next one fails, and is not tried for ever."""
    config = configured(tmp_path)
    asyncio.run(make(config))

    def lost(*_arguments: object) -> str:
        raise OperationalError("SELECT 1", {}, sqlite3.OperationalError("database is locked"))

    monkeypatch.setattr(where, what, lost)
    monkeypatch.setattr(Database, "pause", lambda _self, _count: None)

    assert check(config) == 3
    told = f"FAILED  {failed}: the database no longer answers: database is locked; "
    assert told in capsys.readouterr().out


@pytest.mark.usefixtures("asked")
def test_redis_that_is_away_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An absent Redis never changes the exit code, because agents run without it."""
    limited = LLM + "rpm = 60\n"
    code = check(configured(tmp_path, limited, DOCLLM_REDIS_URL="redis://127.0.0.1:1/0"))

    out = capsys.readouterr().out
    assert code == 0
    assert "WARNING redis: does not answer" in out
    assert "limits: default: rpm = 60; until Redis can be used each agent" in out


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("answer", "text"),
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
        ({"redis_version": "7", "maxmemory": 9, "maxmemory_policy": "noeviction"}, "version 7\n"),
        (
            {"redis_version": "7", "maxmemory": 9, "maxmemory_policy": "volatile-lru"},
            "version 7; it may evict the limits (volatile-lru): set its maxmemory-policy to",
        ),
        ({"redis_version": "7", "maxmemory": 0, "maxmemory_policy": "x"}, "version 7\n"),
    ],
)
def test_nothing_that_redis_does_ends_the_check(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: Any,
    text: str,
) -> None:
    """Nothing that Redis does ends the check: a broken connection, or whatever answers."""

    async def info(_client: object, _section: str) -> dict[str, str]:
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    async def refused(_client: object, _group: str) -> str:
        return ""

    monkeypatch.setattr(Redis, "info", info)
    monkeypatch.setattr(redis_rights, "refused_commands", refused)

    assert check(configured(tmp_path, DOCLLM_REDIS_URL="redis://127.0.0.1:1/0")) == 0
    assert text in capsys.readouterr().out


def test_a_handler_that_cannot_be_imported_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here agents would end with the same words; on Kafka they may run elsewhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("async def good(context): ...\n")
    both = "[types.a]\nhandler = 'mine:good'\n[types.b]\nhandler = 'mine:bad'\n"
    fault = "types.b.handler: module mine has no function bad"

    assert check(configured(tmp_path, both)) != 0
    assert f"FAILED  handlers: {fault}" in capsys.readouterr().out
    cluster = Config(kafka=KafkaConfig(bootstrap="h:9092"), types=configured(tmp_path, both).types)
    with pytest.raises(UnreachableError, match=fault):
        asyncio.run(needs.handlers(cluster))
    check(configured(tmp_path, both.replace("mine:bad", "mine:good")))
    assert "ok      handlers: those of a, b can be imported" in capsys.readouterr().out


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("model", "lines"),
    [
        ("m", ["ok      prices: each model has its price"]),
        (
            "gpt-4.1",
            [
                (
                    "WARNING prices: model gpt-4.1 has no price: its cost is unknown, and is not "
                    "counted; prices.gpt4.1: no route and no type has this model; did you mean "
                    "gpt-4.1?"
                )
            ],
        ),
    ],
)
def test_models_and_prices_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, lines: list[str]
) -> None:
    """A price under a wrong name makes the work look free; it is no failure."""
    price = "m" if model == "m" else "gpt4.1"
    toml = LLM.replace("'m'", f"'{model}'") + f'[prices."{price}"]\ninput_per_mtok = 1\n'

    assert check(configured(tmp_path, toml)) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if " prices: " in line] == lines


@pytest.mark.parametrize(
    ("requirements", "lacks"),
    [
        (["orjson>=3", 'no-such-package>=1; extra == "archive"'], False),
        (['pytest>=1; extra == "documents"'], False),
        (['pytest>=1; extra == "documents"', 'no-such-package>=1; extra == "documents"'], True),
        (None, False),
    ],
)
def test_a_missing_extra_is_found_by_its_packages(
    monkeypatch: pytest.MonkeyPatch, requirements: list[str] | None, *, lacks: bool
) -> None:
    """Only the packages of that extra count."""
    monkeypatch.setattr(metadata, "requires", lambda _name: requirements)

    assert needs.lacks_documents() is lacks

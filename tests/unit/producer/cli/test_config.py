"""`docllm config` shows settings and their places, and no secret."""

import asyncio
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.producer.cli.config import config, plain
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.sources import load_config

FILE = """
[llm]
base_url = "https://joe:hunter2@gateway/v1?key=hunter2"
headers = { "api-key" = "hunter2" }
[database]
url = "mysql://u:hunter2@host:3306/docllm"
[redis]
url = "redis://:hunter2@host"
[kafka]
bootstrap = "kafka:9092"
[kafka.client]
"security.protocol" = "SASL_SSL"
"sasl.password" = "hunter2"
"ssl.key.pem" = "hunter2"
[types.scan]
in_flight = 3
[types.empty]
[routes.other]
api_key = "hunter2"
model = "m"
"""


def shown(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    section: str | None = None,
    whole: bool = False,
    json: bool = False,
    **environ: str,
) -> str:
    monkeypatch.chdir(folder)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    named = "docllm.toml" if (folder / "docllm.toml").exists() else None
    options = Namespace(config=named, section=section, all=whole, json=json, group="g")
    loaded = load_config(flags={"config": named}, environ=os.environ, cwd=folder)
    assert asyncio.run(config(loaded, options)) == 0
    return capsys.readouterr().out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docllm.toml").write_text(FILE.replace("https://joe:hunter2@", "https://"))
    (tmp_path / "docllm.toml").chmod(0o600)
    return tmp_path


def test_each_setting_names_the_place_of_its_value(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """File and line, or variable; a variable wins over the file."""
    lines = shown(folder, monkeypatch, capsys, DOCLLM_SLOTS="9").splitlines()

    assert "types.scan.in_flight = 3  # docllm.toml line 16" in lines
    assert "agent.slots = 9  # DOCLLM_SLOTS" in lines
    assert 'kafka.client.security.protocol = "SASL_SSL"  # docllm.toml line 12' in lines
    assert any(line.startswith("types.empty = null  # docllm.toml") for line in lines)


@pytest.mark.parametrize("json", [False, True])
def test_no_secret_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, json: bool
) -> None:
    """Keys, headers, passwords in addresses and of clients are dots."""
    text = shown(folder, monkeypatch, capsys, json=json, DOCLLM_LLM_API_KEY="hunter2")

    assert "hunter2" not in text
    assert "https://gateway/v1?..." in text
    assert text.count("...") >= 8


def test_a_section_and_defaults_are_shown_when_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting without a default is left out."""
    lines = shown(tmp_path, monkeypatch, capsys, section="llm", whole=True).splitlines()

    assert "llm.timeout_s = 600  # default" in lines
    assert not any(line.startswith(("llm.rpm", "agent.")) for line in lines)
    assert shown(tmp_path, monkeypatch, capsys) == "# nothing is set; --all shows the defaults\n"


def test_openais_variables_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stand for key and address."""
    text = shown(tmp_path, monkeypatch, capsys, json=True, OPENAI_API_KEY="hunter2")

    settings: list[dict[str, Any]] = orjson.loads(text)["settings"]
    assert settings == [
        {"name": "llm.api_key", "value": "...", "from": "OPENAI_API_KEY"},
        {"name": "llm.base_url", "value": "https://api.openai.com/v1", "from": "OPENAI_API_KEY"},
    ]


def test_an_unknown_section_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The known ones are named."""
    with pytest.raises(ConfigError, match="sections are: agent, "):
        shown(tmp_path, monkeypatch, capsys, section="nope")


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("https://joe:hunter2@host:1/v1?key=hunter2", "https://...@host:1/v1?..."),
        ("https://host/a@b", "https://host/a@b"),
        ("s3://bucket/folder/", "s3://bucket/folder/"),
        ("plain text", "plain text"),
    ],
)
def test_login_and_query_of_an_address_are_dots(text: str, without: str) -> None:
    """The rest is shown as it is."""
    assert plain(text) == without

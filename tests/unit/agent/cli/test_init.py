"""`docllm init` writes a file that every command takes."""

from argparse import Namespace
from pathlib import Path

import pytest

from docllm.agent.cli import init
from docllm.agent.cli.docllm_parser import PROVIDERS, docllm_parser
from docllm.schemas.settings.sources import load_config, require_llm


def written(folder: Path, *arguments: str) -> tuple[int, Path]:
    path = folder / "own.toml"
    options = docllm_parser().parse_args(["init", *arguments, "-o", str(path)])
    return init.run(options), path


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_file_of_a_provider_is_complete(
    tmp_path: Path, provider: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the key in its variable, an agent could begin; what is commented out is valid too."""
    code, path = written(tmp_path, provider)

    assert code == 0
    key = init.PROVIDERS[provider].key
    environ = {key: "secret"} if key else {}
    config = load_config(flags={"config": str(path)}, environ=environ, cwd=tmp_path)
    require_llm(config)
    assert config.llm.model
    assert path.stat().st_mode & 0o777 == 0o600
    assert f"--config {path}" in capsys.readouterr().out

    lines = path.read_text().splitlines()
    path.write_text("\n".join(line.removeprefix("# ") if "=" in line else line for line in lines))
    text = path.read_text().replace("# [", "[")
    path.write_text(text)
    load_config(flags={"config": str(path)}, environ=environ, cwd=tmp_path)


def test_without_a_provider_it_is_for_openai(tmp_path: Path) -> None:
    """The providers of the parser are those that have a file."""
    _, path = written(tmp_path)

    assert path.read_text() == init.text_for("openai")
    assert tuple(init.PROVIDERS) == PROVIDERS


def test_an_existing_file_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may hold somebody's settings."""
    (tmp_path / "own.toml").write_text("mine")

    code, path = written(tmp_path)

    assert (code, path.read_text()) == (2, "mine")
    assert "-o FILE" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is the system's."""
    options = Namespace(provider="vllm", output=str(tmp_path / "none" / "own.toml"))

    assert init.run(options) == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err

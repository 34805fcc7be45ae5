"""Settings as a program reads them: of a file, flags and variables, or the text of their faults."""

from pathlib import Path
from typing import Any

import pytest

from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.sources import load_config

MYSQL: dict[str, Any] = {
    "DOCLLM_KAFKA_BOOTSTRAP": "k:9092",
    "DOCLLM_DATABASE_URL": "mysql://u:p@h/docllm",
}
NAMED = {"config": "docllm.toml"}  # flags that name the file, so that it is trusted


def load(
    folder: Path, toml: str = "", flags: dict[str, Any] | None = None, **environ: str
) -> Config:
    """Return the settings of a file with this text."""
    if toml:
        (folder / "docllm.toml").write_text(toml, encoding="utf-8")
    return load_config(flags=flags or {}, environ=environ, cwd=folder)


def fault(folder: Path, toml: str = "", flags: dict[str, Any] | None = None, **environ: str) -> str:
    """Return the text of the error for such settings."""
    with pytest.raises(ConfigError) as refused:
        load(folder, toml, flags, **environ)
    return str(refused.value)

"""Settings that contradict each other."""

from pathlib import Path
from typing import Any

import pytest

from docllm.schemas.errors import ConfigError
from tests.unit.schemas.settings.test_sources import load


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"DOCLLM_KAFKA_BOOTSTRAP": "k:9092"}, "set DOCLLM_DATABASE_URL"),
        (
            {"DOCLLM_KAFKA_BOOTSTRAP": "k:9092", "DOCLLM_DATABASE_URL": "sqlite:///x.db"},
            "set DOCLLM_DATABASE_URL",
        ),
        ({"DOCLLM_DATABASE_URL": "mysql://u:p@h/docllm"}, "set DOCLLM_KAFKA_BOOTSTRAP"),
    ],
)
def test_half_of_a_pair_is_refused(tmp_path: Path, environ: dict[str, Any], words: str) -> None:
    """Kafka with SQLite, or MySQL with the embedded bus, is refused with the variable to set."""
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, **environ)

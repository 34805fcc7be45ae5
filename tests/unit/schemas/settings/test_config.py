"""Secrets in the configuration: never shown, and fit for a header."""

from pathlib import Path

import pytest

from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import KafkaConfig, Secret
from docllm.schemas.settings.headers import sent
from tests.unit.schemas.settings.test_sources import MYSQL, load


def test_secrets_are_in_no_message_and_no_repr(tmp_path: Path) -> None:
    """No error and no repr of the configuration shows a secret, even a misplaced one."""
    toml = "[kafka.client]\n'sasl.password' = 'hunter2'"
    with pytest.raises(ConfigError) as refused:
        load(
            tmp_path,
            toml,
            DOCLLM_DATABASE_URL="oracle://u:hunter2@h/d",
            DOCLLM_REDIS_URL="hunter2",
            DOCLLM_SLOTS="hunter2",
        )

    assert "hunter2" not in str(refused.value)
    config = load(
        tmp_path, toml, **MYSQL, DOCLLM_LLM_API_KEY="hunter2", DOCLLM_REDIS_URL="redis://:hunter2@h"
    )
    assert config.kafka == KafkaConfig(bootstrap="k:9092", client={"sasl.password": "hunter2"})
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize("key", ["", " ", "sk-a b", "sk-a\nb", "sk-schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(key: str) -> None:
    """A key that no header can hold is refused; an HTTP client would quote it in its error."""
    with pytest.raises(ConfigError) as caught:
        sent(Secret(key), {})

    assert "sk-" not in str(caught.value)


def test_a_key_may_end_in_a_line_break() -> None:
    """A key may end in a line break, as it does when it was read from a file."""
    assert sent(Secret("sk-1\n"), {}) == {"Authorization": Secret("Bearer sk-1")}

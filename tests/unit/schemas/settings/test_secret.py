"""A secret is not shown by accident, and few places read it."""

import ast
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from docllm.schemas.settings.config import KafkaConfig, Secret
from tests.support.settings import MYSQL, load
from tests.support.syntax import sources

# Who reads secrets, how often, and for what. Nothing that is read is stored or shown.
READERS = {
    "agent/hooks/batch_hooks.py": (3, "calls the address or command, and looks at its scheme"),
    "agent/llm/client.py": (1, "sends headers to the LLM"),
    "producer/checks/llm.py": (1, "sends headers to the LLM"),
    "producer/metrics/http_server.py": (1, "compares the token of a request"),
    "producer/tracing/otlp.py": (1, "sends headers to the collector"),
    "schemas/clients/redis.py": (2, "opens the address, and looks at its scheme"),
    "schemas/settings/account.py": (2, "a digest of the key names an account"),
    "schemas/settings/faults.py": (1, "looks at the scheme of the database's URL"),
    "schemas/settings/headers.py": (3, "makes the header of a key, masks both in others' texts"),
    "schemas/settings/sources.py": (1, "gives the database's URL to its adapter"),
}


@dataclass(frozen=True)
class Settings:
    """Settings that hold a secret."""

    key: Secret


@pytest.mark.parametrize("show", [str, repr, "{}".format, "%s".__mod__, "{!r:>20}".format])
def test_a_secret_is_not_shown(show: object) -> None:
    """No log line, message or traceback that formats a secret or its holder has its text."""
    assert callable(show)
    for value in (Secret("sk-1234"), Settings(Secret("sk-1234")), [Secret("sk-1234")]):
        assert "sk-1234" not in show(value)


def test_every_reader_of_secrets_is_listed() -> None:
    """Who adds a reader says what it does with the text."""
    readers = Counter(
        path
        for path, source in sources().items()
        for node in source.nodes
        if isinstance(node, ast.Attribute) and node.attr == "reveal"
    )

    assert readers == {path: count for path, (count, _) in READERS.items()}


def test_secrets_are_in_no_repr(tmp_path: Path) -> None:
    """No repr of the configuration shows a secret."""
    toml = "[kafka.client]\n'sasl.password' = 'hunter2'"
    config = load(
        tmp_path, toml, **MYSQL, DOCLLM_LLM_API_KEY="hunter2", DOCLLM_REDIS_URL="redis://:hunter2@h"
    )
    assert config.kafka == KafkaConfig(bootstrap="k:9092", client={"sasl.password": "hunter2"})
    assert "hunter2" not in repr(config)

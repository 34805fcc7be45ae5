"""The digest of all settings of a program, by which agents with other settings are found."""

import hashlib
from dataclasses import fields, is_dataclass, replace
from typing import Any

import orjson

from docllm.schemas.settings.config import Config, OtelConfig, Secret

_CHARS = 16


def settings_digest(config: Config) -> str:
    """Return 16 hexadecimal digits that are equal for equal settings.

    A secret counts only as set or not set. Settings that may differ between machines do not count:
    the path of the configuration file, the collector of traces, and the address for metrics.
    """
    shared = replace(config, otel=OtelConfig(), agent=replace(config.agent, http=None))
    raw = orjson.dumps(_plain(shared), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(raw).hexdigest()[:_CHARS]


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {
            # A field that no repr shows may hold secrets, such as settings of the Kafka client.
            part.name: _plain(content) if part.repr else sorted(content)
            for part in fields(value)
            if part.compare
            for content in [getattr(value, part.name)]
        }
    if isinstance(value, dict):
        return {name: _plain(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(content) for content in value]
    if isinstance(value, Secret):
        return "set"
    return value if isinstance(value, bool | int | float | str | None) else str(value)

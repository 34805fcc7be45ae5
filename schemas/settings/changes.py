"""What differs between two configurations, by the names of settings, and what cannot change.

No name holds a value. Agents with other settings are found by a digest.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import orjson

from docllm.schemas.settings.account import account, configured_routes
from docllm.schemas.settings.catalog import NAMED, below, name_of
from docllm.schemas.settings.config import Config, OtelConfig, Secret

# Sections that a running agent can apply. Parts were built from all other sections at the start, so
# those sections cannot change.
LIVE = ("llm", "routes", "types", "prices", "tenants", "tenant_defaults", "limits", "guard")


def changed_settings(old: Config, new: Config) -> list[str]:
    """Return the names of the settings that differ; of a new or a missing section, its name."""
    return [
        name
        for part in fields(Config)
        if part.compare
        for name in _differences(name_of(part), getattr(old, part.name), getattr(new, part.name))
    ]


def fixed_changes(old: Config, new: Config) -> list[str]:
    """Return the changed settings that a running agent cannot take over.

    A route that is missing is one of them: the agent may hold tasks that go to it.
    """
    removed = [f"routes.{name}" for name in sorted(old.routes.keys() - new.routes.keys())]
    return removed + [
        name for name in changed_settings(old, new) if name.partition(".")[0] not in LIVE
    ]


def longest_timeout_s(config: Config) -> float:
    """Return the longest time that a call may take on any route."""
    return max(account(config, name).timeout_s for name in configured_routes(config))


def _differences(name: str, old: Any, new: Any) -> Iterator[str]:
    if old == new:
        return
    if is_dataclass(old) and type(old) is type(new):
        for part in fields(old):
            inner = below(name, name_of(part))
            yield from _differences(inner, getattr(old, part.name), getattr(new, part.name))
    elif name in NAMED:
        for key in sorted(old.keys() | new.keys()):
            if key in old and key in new:
                yield from _differences(f"{name}.{key}", old[key], new[key])
            else:
                yield f"{name}.{key}"
    else:
        yield name


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

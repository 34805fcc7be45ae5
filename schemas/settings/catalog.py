"""Every setting by its name, and the values of fields by the names of their settings.

`config.py` has a row for each setting. `sources.py` reads the values. `python -m tools.reference`
makes the page of settings from this table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any

from docllm.schemas.settings.config import Config, Price, RouteConfig, TypeConfig
from docllm.schemas.settings.kinds import SETTING, Setting
from docllm.schemas.settings.quota import NamedLimit, TenantConfig

CLIENT = "kafka.client."  # the prefix of librdkafka's own settings
# The sections that a person names, such as `[prices."gpt-4o"]`.
NAMED: dict[str, type[Any]] = {
    "limits": NamedLimit,
    "prices": Price,
    "routes": RouteConfig,
    "tenants": TenantConfig,
    "types": TypeConfig,
}


def name_of(part: Field[Any]) -> str:
    """Return the name of a field's setting, or of its section; empty if it is part of its own."""
    row = part.metadata.get(SETTING)
    if row is None:
        return "" if part.name == "limits" and is_dataclass(part.default) else part.name
    return row.name or part.name


def below(section: str, name: str) -> str:
    """Return a name with the name of the section before it."""
    return ".".join(filter(None, (section, name)))


def arguments(of: type[Any], values: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Return the arguments that make a configuration, or one of its sections, of named values."""
    found: dict[str, Any] = {}
    for part in fields(of):
        name = below(section, name_of(part))
        if SETTING in part.metadata:
            if name in values:
                found[part.name] = values[name]
        elif is_dataclass(part.default):
            inner: type[Any] = type(part.default)
            found[part.name] = inner(**arguments(inner, values, name))
    return found


def _rows(of: type[Any], section: str = "") -> Iterator[tuple[str, Setting]]:
    for part in fields(of):
        name = below(section, name_of(part))
        if SETTING in part.metadata:
            yield name, part.metadata[SETTING]
        elif is_dataclass(part.default):
            yield from _rows(type(part.default), name)


SETTINGS = dict(_rows(Config))
NAMED_SETTINGS = {section: dict(_rows(of)) for section, of in NAMED.items()}

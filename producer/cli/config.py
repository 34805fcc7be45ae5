"""`config`: shows which settings are in force, and where each value comes from."""

import argparse
import os
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import orjson

from docllm.producer.screen.output import answering
from docllm.producer.text.printable import shown
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.catalog import CLIENT
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.secret import Secret
from docllm.schemas.settings.sources import SettingInForce, current_folder, settings_in_force

DOTS = "..."  # in place of a secret
_SHOWN_CHARS = 500
_OPEN_CLIENT = {"security.protocol", "sasl.mechanism", "sasl.mechanisms", "ssl.ca.location"}


async def config(loaded: Config, options: argparse.Namespace) -> int:
    """Print the settings that are given, or with `--all` every one."""
    settings = settings_in_force(
        loaded, flags={"config": options.config}, environ=os.environ, cwd=current_folder()
    )
    chosen = [
        setting
        for setting in _chosen(settings, options.section)
        if setting.where or (options.all and setting.value)
    ]
    with answering(options) as answer:
        answer.put(settings=[])
        for setting in chosen:
            where = setting.where or "default"
            fact = {"name": setting.name, "value": _value(setting), "from": where}
            answer.add("settings", fact)
            if not options.json:
                answer.say(_line(fact, is_default=not setting.where))
        if not options.json and not any(setting.where for setting in chosen):
            answer.say("# nothing is set; --all shows the defaults")
    return 0


def _chosen(settings: Sequence[SettingInForce], section: str | None) -> list[SettingInForce]:
    """Return the settings of a section. Raises ConfigError if there is no such section."""
    if section is None:
        return list(settings)
    found = [s for s in settings if s.name == section or s.name.startswith(f"{section}.")]
    if not found:
        known = sorted({setting.name.partition(".")[0] for setting in settings})
        raise ConfigError(f"no setting is named {section!r}; sections are: {', '.join(known)}")
    return found


def _line(fact: Mapping[str, Any], *, is_default: bool) -> str:
    """Return a line such as `llm.model = "m"  # docllm.toml line 3`."""
    value = fact["value"]
    text = value if is_default else orjson.dumps(value).decode()
    return shown(f"{fact['name']} = {text}  # {fact['from']}", _SHOWN_CHARS)


def _value(setting: SettingInForce) -> Any:
    """Return a setting's value as JSON can hold it, without secrets.

    The client of Kafka has too many settings to know those that are secret.
    """
    name = setting.name.removeprefix(CLIENT)
    if name != setting.name and name not in _OPEN_CLIENT and isinstance(setting.value, str):
        return DOTS
    return plain(setting.value)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it, with dots in place of secrets.

    Of an address, login and query are left out.
    """
    if isinstance(value, Secret):
        return DOTS
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part) for part in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _without_secrets(str(value.value if isinstance(value, Enum) else value))


def _without_secrets(text: str) -> str:
    scheme, is_address, rest = text.partition("://")
    if not is_address:
        return text
    rest, query, _ = rest.partition("?")
    place, slash, path = rest.partition("/")
    _, login, host = place.rpartition("@")
    return (
        f"{scheme}://{DOTS + login if login else ''}{host}{slash}{path}{query + DOTS * bool(query)}"
    )

"""Reads the configuration from flags, then environment, then `docllm.toml`, then defaults.

All faults are reported together. `catalog.py` lists every setting. This module opens no
connection, and none of its messages holds a value.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.next_command import as_called
from docllm.schemas.settings import kinds
from docllm.schemas.settings.catalog import CLIENT, NAMED, NAMED_SETTINGS, SETTINGS, arguments
from docllm.schemas.settings.config import (
    DEFAULT_ROUTE,
    Config,
    LLMConfig,
    OtelConfig,
    Secret,
)
from docllm.schemas.settings.fallback import fallback_faults
from docllm.schemas.settings.faults import (
    account_faults,
    contradictions,
    quota_faults,
    retention_faults,
    route_faults,
    type_faults,
)
from docllm.schemas.settings.file import FILE, NAMING, SettingFile
from docllm.schemas.settings.quota import TenantConfig
from docllm.schemas.task.task_types import is_name
from docllm.schemas.text.wording import did_you_mean

OPENAI_URL = "https://api.openai.com/v1"
LEDGER_FILE = "ledger.sqlite"
# Lines to type where no LLM is configured, each with what it means.
_LLM_LINES = (
    ("export OPENAI_API_KEY=sk-... DOCLLM_LLM_MODEL=NAME", "OpenAI"),
    (
        "export DOCLLM_LLM_BASE_URL=http://localhost:8000/v1 DOCLLM_LLM_MODEL=NAME",
        "any OpenAI-compatible server",
    ),
    ("docllm agent --rehearsal", "no provider: the answers are extracts"),
)

# OpenTelemetry's own variables; the first of each that is set counts.
OTEL_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
OTEL_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_LOG_FORMAT = "DOCLLM_LOG_FORMAT"  # is also read before the settings
_CONFIG = "DOCLLM_CONFIG"  # the variable that names the file
_TESTS = "DOCLLM_TEST_"  # the prefix of the tests' own variables
# Kubernetes sets these variables in a pod for each Service whose name begins with `docllm-`. The
# names of settings take precedence.
_SERVICE = re.compile(
    r"DOCLLM(_[A-Z0-9_]{1,63})?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]{1,63})?"
    r"|PORT(_\d{1,5}_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
_TYPES = "types."
_ALIKE = 0.6  # from here on, a setting is taken for the one that was meant
# Sections whose names are those that lines use, and what a line calls them.
_LINE_NAMES = {"types": "type", "tenants": "tenant"}


@dataclass(frozen=True, slots=True)
class _GivenValue:
    """A value as it was given, where, and the base folder of a relative path in it.

    `unnamed`: the value comes from a file that was found in the current folder, not named with
    --config.
    """

    value: Any
    where: str
    base: Path
    unnamed: bool = False


class SettingInForce(NamedTuple):
    """A setting and where its value comes from: a line of the file, a variable, an option.

    `where` is empty for a default, whose `value` is then the text of the page of settings.
    """

    name: str
    value: Any
    where: str


def early_json_log(environ: Mapping[str, str]) -> bool:
    """Return whether messages before the settings are read, and their faults, are JSON.

    So a JSON log has only JSON lines. Only the environment variable is read.
    """
    return environ.get(_LOG_FORMAT) == "json"


def load_config(*, flags: Mapping[str, object], environ: Mapping[str, str], cwd: Path) -> Config:
    """Return the configuration.

    `flags` are names of the file's settings (`agent.slots`) and `config`, the file to read. None
    means that a flag was not given. Raises ConfigError with one line for each fault.
    """
    faults: list[str] = []
    file, given = _given(flags, environ, cwd, faults)
    faults += [*_key_faults(given), *_otel_faults(given, environ)]
    checked = dict(_checked(given, faults))
    config = replace(_config(checked, environ, cwd), file=None if file is None else file.path)
    wrong = given.keys() - checked.keys()
    if not wrong & {"kafka.bootstrap", "database.url"}:
        faults += contradictions(config)
    faults += [*route_faults(config), *fallback_faults(config), *account_faults(config)]
    faults += [*quota_faults(config), *_header_faults(given, config), *type_faults(config)]
    if not any(name.startswith("retention.") for name in wrong):
        faults += retention_faults(config)
    if faults:
        raise ConfigError("\n".join(faults))
    return config


def _given(
    flags: Mapping[str, object], environ: Mapping[str, str], cwd: Path, faults: list[str]
) -> tuple[SettingFile | None, dict[str, _GivenValue]]:
    """Return the file that is read, if there is one, and the values that are given anywhere."""
    named = flags.get("config") or environ.get(_CONFIG)
    file = _file(named, cwd)
    given = dict(_from_file(file, unnamed=not named)) if file is not None else {}
    return file, given | _from_flags_and_environment(flags, environ, cwd, faults)


def settings_in_force(
    config: Config, *, flags: Mapping[str, object], environ: Mapping[str, str], cwd: Path
) -> list[SettingInForce]:
    """Return the settings with their values, those that are given first.

    `config` is what `load_config` has made of the same flags and environment.
    """
    _, given = _given(flags, environ, cwd, [])
    found = [
        SettingInForce(name.removesuffix("."), value, given[name.removesuffix(".")].where)
        for name, value in _checked(given, [])
    ]
    names = {setting.name for setting in found}
    if config.llm.api_key is not None and "llm.api_key" not in names:
        found.append(SettingInForce("llm.api_key", config.llm.api_key, "OPENAI_API_KEY"))
    if config.llm.base_url is not None and "llm.base_url" not in names:
        is_named = bool(environ.get("OPENAI_BASE_URL"))
        where = "OPENAI_BASE_URL" if is_named else "OPENAI_API_KEY"
        found.append(SettingInForce("llm.base_url", config.llm.base_url, where))
    names = {setting.name for setting in found}
    rest = (name for name in SETTINGS if name not in names)
    return found + [SettingInForce(name, SETTINGS[name].default, "") for name in rest]


def current_folder() -> Path:
    """Return the current folder. Raises ConfigError if it no longer exists."""
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError(
            f"the current folder cannot be found: {error.strerror}; change to another one with cd"
        ) from None


def ledger_url(config: Config) -> str:
    """Return the SQLAlchemy URL of the ledger, for the database adapter alone.

    The URL includes the password.
    """
    if config.database_url is not None:
        return config.database_url.reveal()
    path = str(config.data_dir / LEDGER_FILE)
    # These characters have a meaning in a URL; another folder's ledger would be opened.
    for letter in "%?":
        path = path.replace(letter, quote(letter))
    return f"sqlite:///{path}"


def require_llm(config: Config) -> None:
    """Raise ConfigError with the three lines to type if no LLM is configured."""
    if config.llm.base_url is None:
        commands = [as_called(command) for command, _ in _LLM_LINES]
        width = max(map(len, commands))
        lines = (
            f"  {command:<{width}}  # {meaning}"
            for command, (_, meaning) in zip(commands, _LLM_LINES, strict=True)
        )
        head = "no LLM is configured; type one of these and run again:"
        raise ConfigError("\n".join((head, *lines)))


def _from_file(file: SettingFile, *, unnamed: bool) -> Iterator[tuple[str, _GivenValue]]:
    for name, value in file.values.items():
        yield name, _GivenValue(value, file.where(name), file.path.parent, unnamed)


def _from_flags_and_environment(
    flags: Mapping[str, object], environ: Mapping[str, str], cwd: Path, faults: list[str]
) -> dict[str, _GivenValue]:
    """Return the values of flags and environment; a flag overrides a variable."""
    given: dict[str, _GivenValue] = {}
    names = {setting.variable: name for name, setting in SETTINGS.items() if setting.variable}
    for variable, value in environ.items():
        if variable in names and value:
            given[names[variable]] = _GivenValue(value, variable, cwd)
        elif variable.startswith("DOCLLM_") and not (
            variable in {*names, _CONFIG} or _foreign(variable)
        ):
            faults.append(f"{variable} is unknown{_nearest(variable, [*names, _CONFIG])}")
    for name, flag in flags.items():
        if name != "config" and flag is not None:
            given[name] = _GivenValue(flag, f"--{name.rpartition('.')[2]}", cwd)
    return given


def _key_faults(given: Mapping[str, _GivenValue]) -> Iterator[str]:
    """Refuse to send a key of the environment to an address from a file in the current folder.

    Nobody named that file, so it may come from someone else.
    """
    key, address = given.get("llm.api_key"), given.get("llm.base_url")
    if key is not None and address is not None and address.unnamed and not key.unnamed:
        yield (
            f"{address.where}: the key of {key.where} would be sent to this llm.base_url, but "
            "nobody named this file; set DOCLLM_LLM_BASE_URL too, or name the file if you trust "
            f"it: {NAMING}"
        )


def _otel_faults(given: Mapping[str, _GivenValue], environ: Mapping[str, str]) -> Iterator[str]:
    """Refuse to send the environment's headers to a collector that an unnamed file sets."""
    address = given.get("otel.endpoint")
    variable = next((name for name in OTEL_HEADERS if environ.get(name)), None)
    if address is not None and variable is not None and address.unnamed:
        yield (
            f"{address.where}: the headers of {variable} would be sent to this otel.endpoint, but "
            f"nobody named this file; name it if you trust it: {NAMING}"
        )


def _header_faults(given: Mapping[str, _GivenValue], config: Config) -> list[str]:
    """Refuse to send a key of the environment with headers of a file in the current folder.

    Nobody named that file, and a gateway may forward the call to a host that a header names.
    """
    key = given.get("llm.api_key")
    if config.llm.api_key is None or (key is not None and key.unnamed):
        return []
    # A route with its own key or address does not get this key.
    routes = [
        f"routes.{name}"
        for name, route in config.routes.items()
        if route.api_key is None and route.base_url in {None, config.llm.base_url}
    ]
    names = [f"{section}.headers" for section in ("llm", *routes)]
    return [
        f"{setting.where}: the key of {key.where if key else 'OPENAI_API_KEY'} would be sent with "
        f"these {name}, but nobody named this file; name it if you trust it: {NAMING}"
        for name in names
        if (setting := given.get(name)) is not None and setting.unnamed and setting.value
    ]


def _foreign(variable: str) -> bool:
    """Return whether tests or Kubernetes set this variable, though it looks like docllm's."""
    return variable.startswith(_TESTS) or _SERVICE.fullmatch(variable) is not None


def _file(named: object, cwd: Path) -> SettingFile | None:
    try:
        path = cwd / (kinds.path(named) if named else FILE)
    except ValueError as error:
        raise ConfigError(f"the configuration file's name is wrong; {error}") from None
    if not named and not _exists(path):
        return None
    return SettingFile(path, unnamed=not named, whole=_is_table)


def _is_table(names: tuple[str, ...]) -> bool:
    """Return whether this table of the file is the value of one setting."""
    match names:
        case (
            ("llm" | "otel", "headers")
            | ("routes", _, "headers" | "wordings")
            | ("hooks", "on_batch_done")
        ):
            return True
    return False


def _exists(path: Path) -> bool:
    """Return whether the name exists; reading reports a broken link or a missing permission."""
    try:
        path.lstat()
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    return True


def _checked(given: Mapping[str, _GivenValue], faults: list[str]) -> Iterator[tuple[str, Any]]:
    setting_names = (*SETTINGS, CLIENT, *(f"{section}." for section in NAMED_SETTINGS))
    for name, setting in given.items():
        if setting.value == {} and any(prefix.startswith(f"{name}.") for prefix in setting_names):
            continue  # an empty section
        if fault := _section_fault(name, whole=setting.value == {}):
            faults.append(f"{setting.where}: {fault}")
            continue
        if setting.value == {} and name.startswith(_TYPES):
            yield f"{name}.", None  # a type that needs no setting
            continue
        check = _check_of(name)
        if check is None:
            faults.append(f"{setting.where}: {name} is unknown{_meant(name)}")
            continue
        try:
            yield name, _absolute(check(setting.value), setting.base)
        except ValueError as error:
            faults.append(f"{setting.where}: {name} is wrong; {error}")


def _section_fault(name: str, *, whole: bool) -> str:
    """Return what is wrong with the section of a setting; empty if nothing is.

    `whole` says that the name is that of an empty section. An empty type needs no setting.
    """
    section, _, path = name.partition(".")
    if section not in NAMED_SETTINGS:
        return ""
    title = path if whole else path.rpartition(".")[0]
    if section in _LINE_NAMES and title and not is_name(title):
        return (
            f"[{section}.{json.dumps(title)}] is not a {_LINE_NAMES[section]} that a line can "
            "have; use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit "
            "first"
        )
    if whole and path and not name.startswith(_TYPES) and _check_of(name) is None:
        named = ", ".join(NAMED_SETTINGS[section])
        return f"{name} is empty; set one of {named}, or remove the section"
    return ""


def _check_of(name: str) -> kinds.CheckValue | None:
    if name in SETTINGS:
        return SETTINGS[name].check
    if name.startswith(CLIENT):
        return kinds.client_setting(name.removeprefix(CLIENT))
    section, _, path = name.partition(".")
    section_name, _, part = path.rpartition(".")
    named = NAMED_SETTINGS.get(section, {}).get(part) if section_name else None
    return None if named is None else named.check


def _meant(name: str) -> str:
    """Return which setting a wrong name may mean, or else the names of its section."""
    section, _, path = name.partition(".")
    if section == "llm" and path in NAMED_SETTINGS["routes"]:  # only a route has it
        return f"; did you mean routes.{DEFAULT_ROUTE}.{path}?"
    title, part = (section, path) if section not in NAMED_SETTINGS else name.rpartition(".")[::2]
    own = [
        setting.removeprefix(f"{section}.")
        for setting in SETTINGS
        if setting.startswith(f"{section}.")
    ]
    if section in NAMED_SETTINGS and title == section and not own:
        return f"; a section needs a name, such as [{section}.NAME]"
    if title != section or not own:
        own = list(NAMED_SETTINGS.get(section, {}))
    if not own:
        return _nearest(name, list(SETTINGS))
    nearest_first = sorted(own, key=lambda other: _likeness(part, other), reverse=True)
    if _likeness(part, nearest_first[0]) >= _ALIKE:
        return f"; did you mean {title}.{nearest_first[0]}?"
    return f"; [{title}] has: {', '.join(nearest_first)}"


def _likeness(name: str, setting: str) -> float:
    """Return from 0 to 1 how much a name is like a setting, or spells out its initials."""
    name = name.lower()
    if "".join(word[:1] for word in name.split("_")) == setting:
        return 1.0
    return difflib.SequenceMatcher(None, name, setting).ratio()


def _absolute(value: Any, base: Path) -> Any:
    """Return a value whose relative paths are below `base`, and files of values read."""
    if callable(value):  # what reads a schema
        return value(base)
    if isinstance(value, Path):
        return base / value
    if isinstance(value, tuple):
        return tuple(_absolute(part, base) for part in value)
    return value


def _nearest(name: str, known: list[str]) -> str:
    return f"; {did_you_mean(name, known, did_you_mean(name.lower(), known))}"


def _config(values: Mapping[str, Any], environ: Mapping[str, str], cwd: Path) -> Config:
    config = Config(**arguments(Config, {"data_dir": cwd / Config().data_dir, **values}))
    named: dict[str, Any] = {
        section: {name: of(**arguments(of, parts)) for name, parts in _sections(values, section)}
        for section, of in NAMED.items()
        if section != "tenants"
    }
    defaults = config.tenant_defaults
    tenant = TenantConfig(weight=defaults.weight, in_flight=defaults.in_flight)
    return replace(
        config,
        kafka=replace(config.kafka, client=_under(values, CLIENT)),
        llm=_with_openai(config.llm, environ),
        otel=_with_endpoint(config.otel, environ),
        tenants={
            name: replace(tenant, **arguments(TenantConfig, parts))
            for name, parts in _sections(values, "tenants")
        },
        **named,
    )


def _under(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix)
    }


def _with_openai(llm: LLMConfig, environ: Mapping[str, str]) -> LLMConfig:
    """Fill missing values from OpenAI's variables.

    OpenAI's key is only sent to the address that it belongs to.
    """
    fallback = environ.get("OPENAI_BASE_URL") or OPENAI_URL
    key = llm.api_key
    is_openai = (llm.base_url or fallback).rstrip("/") in {OPENAI_URL, fallback.rstrip("/")}
    if key is None and is_openai and environ.get("OPENAI_API_KEY"):
        key = Secret(environ["OPENAI_API_KEY"].strip())
    base_url = llm.base_url or (fallback if key or environ.get("OPENAI_BASE_URL") else None)
    return replace(llm, base_url=base_url, api_key=key)


def _with_endpoint(otel: OtelConfig, environ: Mapping[str, str]) -> OtelConfig:
    """Take a missing address from OpenTelemetry's variables."""
    if otel.endpoint is not None:
        return replace(otel, named=True)
    endpoint = next((environ[name] for name in OTEL_ENDPOINTS if environ.get(name)), None)
    return replace(otel, endpoint=endpoint)


def _sections(values: Mapping[str, Any], section: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the sections that a person named, each with its settings."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in _under(values, f"{section}.").items():
        section_name, _, part = name.rpartition(".")
        settings = sections.setdefault(section_name, {})
        if part:
            settings[part] = value
    return sorted(sections.items())

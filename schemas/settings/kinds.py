"""The checks of setting values.

Each check takes the value from the file, the environment or a flag and returns the value to use. It
raises ValueError with the right form. The text never holds the wrong value, which may be a secret
in the wrong place.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.address import Address
from docllm.schemas.settings import server_options
from docllm.schemas.settings.secret import Secret
from docllm.schemas.task.allowed_uris import FORM as URI_PREFIX_FORM
from docllm.schemas.task.allowed_uris import folder_uri, require_prefix
from docllm.schemas.task.record.topics import duration_s
from docllm.schemas.text.placeholder import with_places

CheckValue = Callable[[Any], Any]
TRACE_ID = "{trace_id}"  # stands for the id in a template of links to traces
SETTING = "setting"  # where a field keeps its row

# The ledger and the bus rely on these settings, and so do docllm's promises.
FIXED_CLIENT_SETTINGS = (
    "acks",
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "message.timeout.ms",
    "partitioner",
    "request.required.acks",
    "retries",
    "transactional.id",
)
_FUNCTION = re.compile(r"[A-Za-z_]\w*+(?>(?:\.[A-Za-z_]\w*+)*):[A-Za-z_]\w*")
_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
# All other undotted names, such as `error_cb`, are not text settings.
_UNDOTTED = ("debug", "log_level")
# The form that SQLAlchemy can parse. Its errors would quote an address of another form, with the
# password.
_SERVER = re.compile(
    r"([^:/@]*+(:[^@]*+)?@)?(\[[^\]/?@]++\]|[^:/?@]*+)(:\d{1,5})?/[^/?@]++(\?(?P<options>.*+))?"
)
_ONE_ADDRESS = (
    "docllm knows one address: name a proxy or a virtual address that leads to the primary"
)
_DISCOVERED = re.compile(r"(?i)sentinel|cluster")  # schemes of other clients
_DRIVERS = {
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "mysql+pymysql": "mysql+pymysql",
    "mariadb+pymysql": "mysql+pymysql",
    "sqlite": "sqlite",
}


MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its check, and the environment variable that sets it too, if there is one.

    `name` is that in the file, below its section. `meaning` and `default` are for the page of
    settings; an empty default means that there is none.
    """

    name: str
    check: CheckValue
    meaning: str
    default: str = ""
    variable: str | None = None


def setting(
    check: CheckValue,
    meaning: str,
    default: Any = None,
    *,
    shown: str | None = None,
    name: str = "",
    variable: str | None = None,
    compare: bool = True,
) -> Any:
    """Return the field of a setting. `shown`: the default in words, where it is not the value.

    Without a `name`, the setting is called as the field.
    """
    row = Setting(name, check, meaning, _shown(default) if shown is None else shown, variable)
    if default == {}:
        return field(default_factory=dict, metadata={SETTING: row})
    return field(default=default, compare=compare, metadata={SETTING: row})


def _shown(default: Any) -> str:
    """Return a default as the page of settings shows it."""
    if default is None or default == {}:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ",".join(default)
    return f"{default:g}" if isinstance(default, float) else str(default)


def text(value: Any) -> str:
    """Return the text; refuse an empty one."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("write a text")
    return value.strip()


def prompt(value: Any) -> str:
    """Return a prompt, with `{document}` for the place of a task's input."""
    return with_places(text(value))


def secret(value: Any) -> Secret:
    """Return a text that is never shown."""
    return Secret(text(value))


def address(value: Any) -> Address:
    """Return an address to listen on."""
    return Address.read(text(value))


def release(value: Any) -> str:
    """Return the label of a release."""
    if not isinstance(value, str) or _RELEASE.fullmatch(value) is None:
        raise ValueError("write 1 to 64 letters, digits, dots, dashes, underscores and plus signs")
    return value


def truth(value: Any) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise ValueError("write true or false, without quotes")  # noqa: TRY004 - checks raise this
    return value


def whole(low: int, high: int) -> CheckValue:
    """Return a check for a whole number, which may be a text, as in the environment."""

    def check(value: Any) -> int:
        number = _number(value, int)
        if number is None or not low <= number <= high:
            raise ValueError(f"write a whole number from {low} to {high}")
        return int(number)

    return check


def real(low: float, high: float) -> CheckValue:
    """Return a check for a number, which may be a text, as in the environment."""

    def check(value: Any) -> float:
        number = _number(value, float)
        if number is None or not low <= number <= high:
            raise ValueError(f"write a number from {low:g} to {high:g}")
        return float(number)

    return check


def path(value: Any) -> Path:
    """Return a path; `~` means the home folder."""
    if "\0" in text(value):
        raise ValueError("write a path without a zero byte")
    try:
        return Path(text(value)).expanduser()
    except RuntimeError:
        raise ValueError("write the whole path: that user has no home folder") from None


def several(check: CheckValue, form: str, separator: str = ",") -> CheckValue:
    """Return a check for a list of such values, or a text of them; an empty text has none."""
    return lambda value: tuple(check(part) for part in _parts(value, separator, form))


def seconds(value: Any) -> int:
    """Return the seconds of a duration such as `30d`."""
    try:
        return duration_s(text(value))
    except ConfigError:  # the error's text quotes the wrong value
        raise ValueError("write a number and s, m, h or d, for example 30d") from None


def folder(value: Any) -> str:
    """Return the URI of a folder, which is named by its whole path or by a URI."""
    if "://" not in text(value) and not text(value).startswith(("/", "~")):
        raise ValueError("write a whole path, or a URI such as s3://BUCKET/FOLDER/")
    return folder_uri(text(value))


def uri_prefix(value: Any) -> str:
    """Return a URI prefix, which ends with a slash."""
    return require_prefix(text(value))


def networks(value: Any) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return networks of addresses, from a list or from a text with commas."""
    form = "networks of addresses, for example 10.0.0.0/8,fd00::/8"
    try:
        return tuple(ip_network(part) for part in _parts(value, ",", f"a list of {form}"))
    except ValueError:  # its text quotes the value
        raise ValueError(f"write {form}; no bit behind the slash's number is set") from None


def tiers(value: Any) -> tuple[str, ...]:
    """Return retry tiers: rising durations, from a list or from a text with commas."""
    form = "rising durations, for example 30s,5m,1h"
    durations = tuple(text(part) for part in _parts(value, ",", form))
    try:
        lengths_s = [duration_s(part) for part in durations]
    except ConfigError:  # the error's text quotes the wrong value
        raise ValueError(f"write {form}") from None
    if not durations or lengths_s != sorted(set(lengths_s)):
        raise ValueError(f"write {form}")
    return durations


names = several(text, "a list of names")
paths = several(path, "a list of paths", os.pathsep)  # the system's separator
uri_prefixes = several(uri_prefix, f"a list of {URI_PREFIX_FORM}")


def choice(values: Iterable[str]) -> CheckValue:
    """Return a check for one of these words; a word of an enum becomes its member."""
    known = {str(word): word for word in values}

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"write one of {', '.join(known)}, in quotes")
        return known[value]

    return check


def choices(values: type[StrEnum]) -> CheckValue:
    """Return a check for a list of these words."""

    def check(value: Any) -> tuple[StrEnum, ...]:
        words = _parts(value, ",", "a list of words")
        try:
            return tuple(dict.fromkeys(values(word) for word in words))
        except ValueError:
            raise ValueError(f"write a list of {', '.join(values)}, each in quotes") from None

    return check


def function(value: Any) -> str:
    """Return the name of a function with its module."""
    if _FUNCTION.fullmatch(text(value)) is None:
        raise ValueError("write package.module:function")
    return text(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHook:
    """What is called at the end of a batch: a function, a URL or a command; one of them is set."""

    function: str = ""
    url: Secret | None = None
    command: Secret | None = None

    def __str__(self) -> str:
        """Return it for a person, without secrets."""
        return self.function or ("https://..." if self.url else "{ command = ... }")


def batch_hook(value: Any) -> BatchHook:
    """Return what is called at the end of a batch."""
    form = 'write package.module:function, https://HOST/PATH, or { command = "PROGRAM ARGUMENTS" }'
    if isinstance(value, dict):
        if value.keys() != {"command"} or not _words(value["command"]):
            raise ValueError(form)
        return BatchHook(command=Secret(value["command"]))
    try:
        return BatchHook(function=function(value))
    except ValueError:
        pass
    try:
        return BatchHook(url=Secret(http_url(value)))
    except ValueError:
        raise ValueError(form) from None


def _words(command: Any) -> list[str]:
    """Return the words of a command; none if it cannot be split into words."""
    try:
        return shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # a quote that does not end
        return []


def database_url(value: Any) -> Secret:
    """Return the URL with the driver that docllm uses."""
    scheme, separator, address = text(value).partition("://")
    if not separator or scheme not in _DRIVERS:
        raise ValueError("write mysql://USER:PASSWORD@HOST:3306/DATABASE (MariaDB too)")
    if scheme != "sqlite":
        if _names_several(address):
            raise ValueError(f"{_ONE_ADDRESS}: write mysql://USER:PASSWORD@HOST:3306/DATABASE")
        address = _server(address)
    return Secret(f"{_DRIVERS[scheme]}://{address}")


def _names_several(address: str) -> bool:
    """Return whether an address without its scheme names several hosts."""
    host = address.partition("?")[0].rpartition("@")[2].partition("/")[0]
    return "," in host


def redis_url(value: Any) -> Secret:
    """Return the URL of a Redis server, with or without TLS."""
    form = (
        "write redis://USER:PASSWORD@HOST:6379/0, or rediss:// for TLS, "
        "special characters of the password as %XX"
    )
    scheme, _, address = text(value).partition("://")
    if _names_several(address) or _DISCOVERED.search(scheme):
        raise ValueError(f"{_ONE_ADDRESS}: {form}")
    try:
        url = urlsplit(text(value))
        is_port = url.port is None or url.port > 0
    except ValueError:  # the error's text may quote the address
        raise ValueError(form) from None
    is_server = url.scheme in {"redis", "rediss"} and not url.fragment
    database = url.path.removeprefix("/")
    if url.scheme != "unix" and not (is_server and is_port and (database or "0").isdecimal()):
        raise ValueError(form)
    return Secret(text(value))


def http_url(value: Any) -> str:
    """Return an http(s) URL."""
    try:
        url = urlsplit(text(value))
    except ValueError:  # the error's text may quote the address
        url = urlsplit("")
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError("write an address such as https://api.openai.com/v1")
    return text(value)


def trace_link(value: Any) -> str:
    """Return an http(s) URL in which a trace's id has its place."""
    try:
        url = http_url(value)
    except ValueError:
        url = ""
    if TRACE_ID not in url:
        raise ValueError(f"write an address such as https://jaeger.example/trace/{TRACE_ID}")
    return url


def client_setting(name: str) -> CheckValue:
    """Return a check for one librdkafka setting, which is passed on as text."""

    def check(value: Any) -> str:
        if name in FIXED_CLIENT_SETTINGS:
            raise ValueError("docllm sets this one itself; remove it")
        if "." not in name and name not in _UNDOTTED:
            raise ValueError("librdkafka has no such setting; see its CONFIGURATION.md")
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float):
            raise ValueError("write a text, a number, or true or false")  # noqa: TRY004 - as others
        return str(value)

    return check


def _server(address: str) -> str:
    """Return the address of a server as the driver gets it."""
    parts = _SERVER.fullmatch(address)
    if parts is None:
        raise ValueError(
            "name the database at the end, and write %40 for an @ in the password: "
            "mysql://USER:PASSWORD@HOST:3306/DATABASE"
        )
    if parts["options"] is None:
        return address
    options = server_options.read_options(parts["options"])
    bare = address[: parts.start("options") - 1]
    return f"{bare}?{options}" if options else bare


def _number(value: Any, kind: type[int | float]) -> int | float | None:
    if isinstance(value, str):
        try:
            return kind(value)
        except ValueError:
            return None
    fits = isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)
    return value if fits else None


def _parts(value: Any, separator: str, form: str) -> list[str]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(separator) if part.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError(f"write {form}")  # noqa: TRY004 - checks raise ValueError
    return [str(part) for part in value]


def schema_file(value: Any) -> Callable[[Path], dict[str, Any]]:
    """Return what reads the schema of a file; a relative path is below the folder it is given.

    It raises ValueError if that is no schema.
    """
    return partial(_schema_in, path(value))


def _schema_in(file_path: Path, base: Path) -> dict[str, Any]:
    # Most programs need no validator, and loading one takes time.
    from docllm.schemas.task.line.field_checks import answer_schema  # noqa: PLC0415
    from docllm.schemas.task.line.strict_json import LineError  # noqa: PLC0415

    try:
        with (base / file_path).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise ValueError(f"the file is too large; a schema has at most {MAX_BYTES} bytes")
    try:
        return answer_schema("the schema", orjson.loads(raw))
    except orjson.JSONDecodeError as error:
        raise ValueError(f"the file is not JSON at line {error.lineno}") from None
    except LineError as error:
        raise ValueError(f"{error.field} {error.error}; {error.fix}") from None

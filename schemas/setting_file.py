"""Reads `docllm.toml` as flat names with the place of each, so that a fault can be pointed at. It knows no setting."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.errors import ConfigError

FILE = "docllm.toml"
_HEADER = re.compile(r"\s*\[+([^\[\]]+)\]")
_PAIR = re.compile(r"\s*([\w\"'. -]+?)\s*=")


class SettingFile:
    """A configuration file: `values` by name (tables joined by dots), and the folder that its paths start from."""

    def __init__(self, path: Path) -> None:
        """Read it; raise ConfigError when that cannot be done."""
        self.path = path
        try:
            self._text = path.read_text("utf-8")
            self.values = _flat(tomllib.loads(self._text))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not UTF-8") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None
        except ValueError:  # its text would be of Python's own settings
            raise ConfigError(f"{path} holds a number that is too long; no setting is that large") from None
        except RecursionError:
            raise ConfigError(f"{path} is nested too deeply; no setting is more than three names deep") from None

    def where(self, name: str) -> str:
        """Return the file and, where it can be told, the line that sets `name`."""
        table = ""
        for number, line in enumerate(self._text.splitlines(), 1):
            if header := _HEADER.match(line):
                table = _bare(header[1])
            pair = _PAIR.match(line)
            at = ".".join(filter(None, (table, _bare(pair[1])))) if pair else table
            if at == name:
                return f"{self.path.name} line {number}"
        return self.path.name


def _bare(name: str) -> str:
    return name.replace('"', "").replace("'", "").replace(" ", "")


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        inner = isinstance(value, dict) and value
        found |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return found

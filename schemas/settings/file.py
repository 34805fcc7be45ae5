"""Reads `docllm.toml` as flat names, each with its line, so that a fault can be located.

This module knows no settings. The file names handlers (code) and addresses to which keys are sent.
So a file that was found in the current folder, rather than named with --config, is read only if no
other user could have placed it there.
"""

import grp
import os
import pwd
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from docllm.schemas.errors import ConfigError

FILE = "docllm.toml"
# How a person says that the file is trusted; a container's command line is often fixed.
NAMING = f"--config {FILE}, or DOCLLM_CONFIG={FILE}"
_HEADER = re.compile(r"\s*+\[++([^\[\]]++)\]")
_PAIR = re.compile(r"\s*+([\w\"'.\s-]++)=")
_ERROR_LINE = re.compile(r"\(at line (\d{1,9}),")
_TRUTHS = ("true", "false")
_BARE = re.compile(r"\s*+([\w.-]++)\s*+=\s*+([^\"'\[{\s#]++)")


class SettingFile:
    """A configuration file: its `values` by name, and the base folder of its paths.

    The names of nested tables are joined by dots. A table for which `whole` is true is a value of
    its own; `whole` gets the table's names, from the outermost one.
    """

    def __init__(
        self,
        path: Path,
        *,
        unnamed: bool = False,
        whole: Callable[[tuple[str, ...]], bool] = lambda _names: False,
    ) -> None:
        """Read the file.

        Raises ConfigError if it cannot be read, or if it is `unnamed` and others may write to it.
        """
        import tomllib  # noqa: PLC0415 - few programs have a file

        self.path = path
        try:
            with open(path, encoding="utf-8", opener=_without_waiting if unnamed else None) as file:
                if unnamed:
                    _require_trust(path, os.fstat(file.fileno()))
                self._text = file.read()
            self.values = dict(_flat(tomllib.loads(self._text), whole))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not UTF-8") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not TOML: {error}{self._quoting(error)}") from None
        except ValueError:  # the error's own text would name a setting of Python
            raise ConfigError(
                f"{path} holds a number that is too long; no setting is that large"
            ) from None
        except RecursionError:
            raise ConfigError(
                f"{path} is nested too deeply; no setting is more than three names deep"
            ) from None

    def _quoting(self, error: Exception) -> str:
        """Return advice if the line of an error has a text without quotes."""
        line = _ERROR_LINE.search(str(error))
        bare = line and _BARE.match(self._text.splitlines()[int(line[1]) - 1])
        if not bare or bare[2].lower() in _TRUTHS or not any(map(str.isalpha, bare[2])):
            return ""
        return f'; {bare[1]} is a text, write it in quotes: {bare[1]} = "..."'

    def where(self, name: str) -> str:
        """Return the file's name and, if it can be found, the line that sets `name`.

        For a table that is a value, this is the line where it begins.
        """
        table = ""
        for number, line in enumerate(self._text.splitlines(), 1):
            if header := _HEADER.match(line):
                table = _unquoted(header[1])
            pair = _PAIR.match(line)
            position = ".".join(filter(None, (table, _unquoted(pair[1])))) if pair else table
            if position == name or position.startswith(f"{name}."):
                return f"{self.path.name} line {number}"
        return self.path.name


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking, because another user may have put a pipe in its place."""
    return os.open(path, flags | os.O_NONBLOCK)


def _require_trust(path: Path, opened: os.stat_result) -> None:
    """Raise ConfigError unless only this user or root can have written the file.

    The file and its folder must belong to this user or root, and no other user may have write
    permission.
    """
    folders = {folder: folder.stat() for folder in (path.parent, path.resolve().parent)}
    fix = f"name the file if you trust it: {NAMING}"
    if not stat.S_ISREG(opened.st_mode):
        raise ConfigError(f"{path} is not read: it is not a regular file; {fix}")
    for place, status in {**folders, path: opened}.items():
        if status.st_uid not in {0, os.geteuid()}:
            raise ConfigError(f"{path} is not read: {place} belongs to another user; {fix}")
        group_writes = status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid)
        if status.st_mode & stat.S_IWOTH or group_writes:
            raise ConfigError(
                f"{path} is not read: other users may write to {place}; run: "
                f"chmod go-w {shlex.quote(str(place))}, or {fix}"
            )


def _is_private(group_id: int) -> bool:
    """Return whether this user is a group's only member.

    Many systems give each user such a group, with a umask of 002.
    """
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _unquoted(name: str) -> str:
    return "".join(name.replace('"', "").replace("'", "").split())


def _flat(
    table: Mapping[str, Any],
    whole: Callable[[tuple[str, ...]], bool],
    names: tuple[str, ...] = (),
) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        path = (*names, name)
        if isinstance(value, dict) and value and not whole(path):
            yield from _flat(value, whole, path)
        else:
            yield ".".join(path), value

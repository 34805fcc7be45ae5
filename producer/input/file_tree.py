"""Lists the files that a folder or a glob means, in the order of their ids. Opens no file.

An id is the path below the folder, or below the glob's fixed part, with `/` between its parts.
docllm's own files are left out, and hidden files unless the glob names their dot.

Links to files are followed only inside the tree, and links to folders never. A link or a name that
may hide documents which the pattern means is an entry with a problem, so that nothing is left out
silently.
"""

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Self

from docllm.producer.input.excluded_files import inodes, is_own, resolved
from docllm.schemas.errors import ConfigError

_WEB = ("http://", "https://")
WILD = "*?["
_ANY_DEPTH = "**"
_MEND_LINK = "remove the link, or restore the file"
_MEND_FILE = "allow the file to be read, then load again"
_OTHER_CASE = (
    "matches the pattern but for the case of its ending",
    "rename it, or write the pattern so that it matches, for example '*.[tT][xX][tT]'",
)
# A folder to enter, the parts of its path, and the positions in the pattern that it leads to.
_Folder = tuple[Path, tuple[str, ...], set[int]]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A document by its id, or the problem with it: `problem` and `fix`."""

    id: str
    path: Path
    problem: str = ""
    fix: str = ""


@dataclass(frozen=True)
class FileTree:
    """A folder, and the pattern that the paths below it must match, part by part.

    `leave_out`: files and folders that are no documents.
    """

    root: Path
    pattern: tuple[str, ...] = (_ANY_DEPTH,)
    leave_out: Collection[Path] = ()

    @classmethod
    def of(cls, source: str, *, leave_out: Collection[Path] = ()) -> Self:
        """Return the tree that a DIR or GLOB means.

        Raises ConfigError when its folder cannot be seen, or when it names a user without a home
        folder.
        """
        if source.startswith(_WEB):
            raise ConfigError(
                "a web server lists no documents; load lines that name each by its input.uri"
            )
        path = _path(source)
        # `Path.is_dir` raises for a pattern that no file can have as its name.
        fixed = path if os.path.isdir(path) else _fixed_part(path)  # noqa: PTH112
        if not _is_folder(fixed):
            raise ConfigError(
                f"there is no folder {fixed}; write a folder or a quoted pattern, "
                "for example 'docs/**/*.txt'"
            )
        pattern = path.parts[len(fixed.parts) :]
        require_whole_depths(pattern)
        return cls(fixed.resolve(), pattern or (_ANY_DEPTH,), resolved(leave_out))

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.root.name or "documents"

    def entries(self) -> Iterator[FileEntry]:
        """Yield the matching entries in the order of their ids, however deep the tree is.

        Only the names in the folders on the current path are in memory.
        """
        open_folders = [self._list_folder(self.root, (), _skip_empty_depths({0}, self.pattern))]
        while open_folders:
            for entry in open_folders[-1]:
                if not isinstance(entry, FileEntry):
                    open_folders.append(self._list_folder(*entry))
                    break
                yield entry
            else:
                open_folders.pop()

    def _list_folder(
        self, folder: Path, parents: tuple[str, ...], positions: set[int]
    ) -> Iterator["FileEntry | _Folder"]:
        """Yield the entries of one folder and, in their places, the folders to enter.

        `positions` are those in the pattern that the folder's path leads to.
        """
        try:
            items = sorted(os.scandir(folder), key=_order)
        except OSError as error:
            yield FileEntry(
                "/".join(parents) or str(folder),
                folder,
                f"cannot be listed: {error.strerror}",
                "allow it to be read",
            )
            return
        for item in items:
            path, parts = Path(item.path), (*parents, item.name)
            reached = _positions_after(item.name, positions, self.pattern)
            is_passed = any(position < len(self.pattern) for position in reached)
            if item.is_dir(follow_symlinks=False):
                if is_passed and path not in self.leave_out:
                    yield path, parts, reached
            elif not is_own(path, self.leave_out):
                entry, is_link = None, is_passed and item.is_symlink()
                if len(self.pattern) in reached or (is_link and _may_be_folder(item)):
                    entry = self._entry(item, "/".join(parts), reached)
                elif self._differs_in_case(item.name, positions):
                    entry = FileEntry("/".join(parts), path, *_OTHER_CASE)
                if entry is not None:
                    yield entry

    def _differs_in_case(self, name: str, positions: set[int]) -> bool:
        """Return whether a file matches but for the case of its ending, as `A.TXT` and `*.txt`."""
        dot, ending = "", ""
        if self.pattern[-1] != _ANY_DEPTH:
            _, dot, ending = self.pattern[-1].rpartition(".")
        start = len(name) - len(dot + ending)
        if not ending or any(char in ending for char in WILD) or start < 0:
            return False
        if name[start:].lower() != (dot + ending).lower():
            return False
        alike = name[:start] + dot + ending
        return len(self.pattern) in _positions_after(alike, positions, self.pattern)

    def _entry(self, item: "os.DirEntry[str]", name: str, reached: set[int]) -> FileEntry | None:
        """Return the entry of a file or link; None for a linked folder that hides nothing."""
        path = Path(item.path)
        problem, fix = "", ""
        try:
            is_file = item.is_file()
            is_own_link = is_file and self._is_link_to_own(item.stat())
        # This comes before the link is resolved, because a loop cannot be resolved.
        except OSError as error:
            if not item.is_symlink():
                return FileEntry(name, path, f"cannot be read: {error.strerror}", _MEND_FILE)
            problem = f"is a link that cannot be followed: {error.strerror}"
            return FileEntry(name, path, problem, _MEND_LINK)
        if shown_name(name) != name:
            problem, fix = "has a name that is not UTF-8", "rename it"
        elif is_own_link or (item.is_symlink() and is_own(path.resolve(), self.leave_out)):
            problem, fix = "is a link to a file of docllm's own", "remove the link"
        elif item.is_symlink() and not path.resolve().is_relative_to(self.root):
            problem = "is a link out of the folder"
            fix = "copy what it points to, or load that folder itself"
        elif not is_file and not path.exists():
            problem, fix = "is a link to a file that does not exist", _MEND_LINK
        elif not is_file and path.is_dir():
            if reached - {len(self.pattern)} <= self._positions_of(path.resolve()):
                return None
            problem = "is a link to a folder whose documents the pattern does not mean"
            fix = "load that folder itself, or remove the link; links to folders are not followed"
        elif not is_file:
            problem = "is not a regular file"
            fix = "move it elsewhere, or name the documents with a pattern"
        return FileEntry(name, path, problem, fix)

    def _is_link_to_own(self, status: os.stat_result) -> bool:
        """Return whether a file with several names is also one of docllm's own."""
        return status.st_nlink > 1 and (status.st_dev, status.st_ino) in self._own_inodes

    @cached_property
    def _own_inodes(self) -> frozenset[tuple[int, int]]:
        return inodes(self.leave_out)

    def _positions_of(self, folder: Path) -> set[int]:
        """Return the positions in the pattern that a folder's own path leads to."""
        positions = _skip_empty_depths({0}, self.pattern)
        for part in folder.relative_to(self.root).parts:
            positions = _positions_after(part, positions, self.pattern)
        return positions


def _may_be_folder(link: "os.DirEntry[str]") -> bool:
    """Return whether a link leads to a folder, or nobody can tell."""
    try:
        return link.is_dir() or not link.is_file()
    except OSError:
        return True


def require_whole_depths(pattern: tuple[str, ...]) -> None:
    """Refuse `**` beside other characters, which would match in one folder only."""
    for part in pattern:
        if _ANY_DEPTH in part and part != _ANY_DEPTH:
            name = re.sub(r"\*{2,}+", "*", part)
            raise ConfigError(
                f"{part} in a pattern would match in one folder only; "
                f"write **/{name} for any depth, or {name}"
            )


def shown_name(name: str) -> str:
    """Return a file's name as text; bytes that are not UTF-8 become replacement characters."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _path(source: str) -> Path:
    """Return the path of a DIR or GLOB; `~` is the home folder."""
    try:
        return Path(source).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{source} names a user without a home folder; write the whole path"
        ) from None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:
        raise ConfigError(f"{path} cannot be looked at: {error.strerror}") from None


def _fixed_part(path: Path) -> Path:
    first_wild = next(
        (index for index, part in enumerate(path.parts) if any(char in part for char in WILD)),
        len(path.parts) - 1,
    )
    return Path(*path.parts[:first_wild])


def _order(item: "os.DirEntry[str]") -> bytes:
    """Return a sort key that puts whole paths in order: `a.txt` before `a/b`."""
    return os.fsencode(item.name + "/" if item.is_dir(follow_symlinks=False) else item.name)


def matches_pattern(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether a path matches a pattern.

    All ways through the pattern are followed at once, as positions in it, so no path is too deep.
    """
    positions = _skip_empty_depths({0}, pattern)
    for part in parts:
        positions = _positions_after(part, positions, pattern)
    return len(pattern) in positions


def _positions_after(part: str, positions: set[int], pattern: tuple[str, ...]) -> set[int]:
    """Return the positions in the pattern to which one more part of a path leads."""
    matched = {
        position
        for position in positions
        if position < len(pattern) and _part_matches(part, pattern[position])
    }
    return _skip_empty_depths(
        {position if pattern[position] == _ANY_DEPTH else position + 1 for position in matched},
        pattern,
    )


def _skip_empty_depths(positions: set[int], pattern: tuple[str, ...]) -> set[int]:
    """Return these positions, and those behind a `**` that stands for no folder."""
    for position, part in enumerate(pattern):
        if position in positions and part == _ANY_DEPTH:
            positions.add(position + 1)
    return positions


def _part_matches(part: str, pattern: str) -> bool:
    hidden = part.startswith(".") and not pattern.startswith(".")
    return not hidden and (pattern == _ANY_DEPTH or fnmatchcase(part, pattern))

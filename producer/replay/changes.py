"""What a replay changes of its tasks, read and checked before anything is written.

A task may run with another model, route, prompt or schema, and with the present content of its
document.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, select

from docllm.producer.input.document_source import UnusableError, look_into
from docllm.producer.input.excluded_files import file_of, own_files, resolved, root_of
from docllm.producer.input.line_checks import LineChecks
from docllm.producer.input.lines import InvalidLine, read_line
from docllm.producer.ledger import batch_options, task_changes
from docllm.producer.ledger.dead_letters import selected_pages
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.results.export import Read
from docllm.producer.replay.runs import Documents
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger.tables import batch, task, task_input
from docllm.schemas.objects.address import is_object_uri
from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.objects.store import ObjectStores, same_etag
from docllm.schemas.settings.config import Config
from docllm.schemas.task.line.field_checks import is_file_uri
from docllm.schemas.task.line.overrides import IDENTITY, Overrides, merged, overridden

_PAGE = 20  # lines in memory at once


def check(
    read: Read, config: Config, group: str, selection: Selection, overrides: Overrides
) -> None:
    """Read each selected task with its changes. Raises ConfigError if one could not be loaded so.

    Changes of earlier replays stay where these do not replace them.
    """

    @lru_cache(maxsize=1000)
    def checks(allowed: tuple[str, ...] | None) -> LineChecks:
        return LineChecks(config, routes=allowed)

    for one in _tasks(read, group, selection):
        line = read_line(0, overridden(one.line, merged([one.earlier, overrides])))
        if not isinstance(line, InvalidLine):
            line = checks(batch_options.routes_allowed(one.batch_options)).check_route(line) or line
        if isinstance(line, InvalidLine):
            raise ConfigError(
                f"nothing is replayed, because task {one} cannot run so: {line.problem}; {line.fix}"
            )


def lines(read: Read, group: str, selection: Selection) -> Iterator[bytes]:
    """Yield the line of each selected task, with what replays have changed."""
    for one in _tasks(read, group, selection):
        yield overridden(one.line, one.earlier) if one.earlier else one.line


def read_documents(
    read: Read, config: Config, group: str, selection: Selection, stores: ObjectStores | None = None
) -> Documents:
    """Look at the document of each selected task: file, or object in a store."""
    documents = Documents()
    look = _looker(config, ObjectStores() if stores is None else stores)
    for one in _tasks(read, group, selection):
        source = orjson.loads(one.line).get("input") or {}
        if not any(name in source for name in IDENTITY):
            documents.inline += 1
            continue
        try:
            news = look(source["uri"])
        except (UnusableError, ObjectError, OSError) as error:
            problem = (
                f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            )
            documents.unusable[one.id] = f"{one}: {problem}"
            continue
        if _is_same(source, news):
            documents.unchanged += 1
        else:
            documents.news[one.id] = orjson.dumps(news).decode()
    return documents


def _is_same(source: dict[str, Any], news: dict[str, Any]) -> bool:
    if "etag" in source and not same_etag(source["etag"], news.get("etag")):
        return False
    return all(source[name] == news.get(name) for name in ("size", "sha256") if name in source)


def _looker(config: Config, stores: ObjectStores) -> Callable[[str], dict[str, Any]]:
    """Return what looks at documents as `load` does; at files only where agents may read them."""
    roots, own = resolved(config.roots()), resolved(own_files(config))

    def look(uri: str) -> dict[str, Any]:
        """Return what tells a document from another: size, and SHA-256 or etag."""
        if is_object_uri(uri):
            entry = stores.head(uri)
            if not 0 < entry.size <= MAX_DOCUMENT_BYTES:
                raise UnusableError(f"is {entry.size} bytes long", "")
            return {"size": entry.size} | ({} if entry.etag is None else {"etag": entry.etag})
        if not is_file_uri(uri):
            raise UnusableError("is on the web, where only agents read", "")
        target = file_of(uri)
        if target is None or root_of(target, roots, own) is None:
            raise UnusableError("is not below an allowed root (documents.roots)", "")
        if target.exists() and not target.is_file():
            raise UnusableError("is not a regular file", "")
        source = look_into(target).by_uri()
        return {"size": source["size"], "sha256": source["sha256"]}

    return look


class _Task(NamedTuple):
    """A selected task, with what earlier replays have changed."""

    id: int
    key: str
    batch: str
    batch_options: str | None
    line: bytes
    earlier: Overrides

    def __str__(self) -> str:
        return f"{self.key} of batch {self.batch}"


def _tasks(read: Read, group: str, selection: Selection) -> Iterator[_Task]:
    """Yield the selected tasks whose input is kept."""
    for ids in selected_pages.pages(read, group, selection):
        for start in range(0, len(ids), _PAGE):
            yield from read(partial(_page, ids=ids[start : start + _PAGE]))


def _page(connection: Connection, *, ids: Sequence[int]) -> list[_Task]:
    query = (
        select(
            task.c.id,
            task.c.task_key,
            batch.c.name,
            batch.c.options,
            task_input.c.body,
            task.c.changed,
        )
        .join(batch, batch.c.id == task.c.batch_id)
        .join(task_input, task_input.c.task_id == task.c.id)
        .where(task.c.id.in_(ids))
        .order_by(task.c.id)
    )
    rows = connection.execute(query).all()
    changed = [row.id for row in rows if row.changed]
    earlier = task_changes.overrides(connection, changed) if changed else {}
    return [
        _Task(
            row.id,
            row.task_key.decode(errors="backslashreplace"),
            row.name,
            row.options,
            bytes(row.body),
            earlier.get(row.id, {}),
        )
        for row in rows
    ]

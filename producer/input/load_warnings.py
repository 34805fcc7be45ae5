"""Finds what a load warns about in its input, and that is no reason to refuse a line."""

import os
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heappushpop
from itertools import count, takewhile

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.conversion import INSTALL, TextSizes
from docllm.producer.input.documents import DocumentLine
from docllm.producer.input.excluded_files import (
    file_of,
    is_hidden,
    is_own,
    own_files,
    resolved,
    root_of,
)
from docllm.producer.input.handler_trial import broken_handlers
from docllm.producer.input.lines import ValidLine
from docllm.schemas.documents.kind import Kind
from docllm.schemas.settings.config import BYTES_PER_TOKEN, Config
from docllm.schemas.task.allowed_uris import allowed
from docllm.schemas.task.line.field_checks import is_file_uri
from docllm.schemas.task.line.parsing import PLACEHOLDER
from docllm.schemas.task.task_types import MAP_REDUCE
from docllm.schemas.text.wording import money, number_of, units

EMBEDDED_TASKS = 500_000  # from here on, embedded parts are slow
LARGE = 100  # tasks with one prompt
CACHED_TOKENS = 1024  # providers cache no beginning that is shorter
_NAMED = 3  # tasks or documents
_NAME_CHARS = 80
_PLACE_PARTS = 3  # the first parts of a path or a URI, by which places are told apart
_PLACES_SHOWN = 3
_REMEMBERED = 1000  # prompts come from lines, so there may be any number
_CACHED_BYTES = CACHED_TOKENS * BYTES_PER_TOKEN
_MAX_CHAR_BYTES = 4


class PastDeadlines:
    """Counts the tasks whose deadline lies before `utc_s`: they die without a call."""

    def __init__(self, utc_s: float) -> None:
        self._now = datetime.fromtimestamp(utc_s, UTC)
        self._first: ValidLine | None = None
        self.count = 0

    def add(self, line: ValidLine) -> None:
        """Check the deadline of one task."""
        deadline = line.task.deadline
        if deadline is not None and deadline < self._now:
            self.count += 1
            self._first = self._first or line

    def __str__(self) -> str:
        """Return the warning, empty without such a task."""
        if self._first is None or self._first.task.deadline is None:
            return ""
        when = f"{self._first.task.deadline:%Y-%m-%dT%H:%M:%SZ}"
        verb, fate = ("has", "it") if self.count == 1 else ("have", "they")
        return (
            f"{number_of(self.count, 'task')} {verb} a deadline that has passed, such as "
            f"{self._first.key!r} (line {self._first.line}: {when}); {fate} will be dead without "
            "a call"
        )


class LongDocuments:
    """Counts the tasks that are probably longer than the context of their model.

    What a model takes is set by `context_tokens`, or known for common models. A task's length is
    only estimated, from its bytes, so the result is a warning and no refusal.
    """

    def __init__(self, accounts: TaskAccounts) -> None:
        self._accounts = accounts
        self._longest: list[tuple[int, int, str, str, int]] = []
        self._order = count()
        self.count = 0

    def add(self, line: ValidLine) -> None:
        """Check one task: its line, and the document that it names by URI."""
        account = self._accounts.of(line.task)
        limit = account.context_tokens
        if limit is None or line.task.type == MAP_REDUCE:  # its agents split it
            return
        if (tokens := line.input_bytes // BYTES_PER_TOKEN) <= limit:
            return
        self.count += 1
        # Of equally long tasks, the first one is kept.
        entry = (tokens, -next(self._order), line.document or line.key, account.model, limit)
        if len(self._longest) < _NAMED:
            self._longest.append(entry)
            self._longest.sort()
        else:
            heappushpop(self._longest, entry)

    def __str__(self) -> str:
        """Return the warning, empty without such a task."""
        if not self.count:
            return ""
        longest = [
            f"{name[:_NAME_CHARS]!r} (about {tokens:,} tokens, {model} takes {limit:,})"
            for tokens, _, name, model, limit in sorted(self._longest, reverse=True)
        ]
        rest = ", ..." if self.count > len(longest) else ""
        verb = "is" if self.count == 1 else "are"
        return (
            f"{number_of(self.count, 'task')} {verb} probably longer than the model takes: "
            f"{', '.join(longest)}{rest}; estimated with {BYTES_PER_TOKEN} bytes a token; "
            "load them as type map-reduce, which splits them, name a model that takes more, or "
            "correct `context_tokens` in the settings"
        )


@dataclass(slots=True)
class _Prompt:
    """The tasks with one prompt: their number, and the bytes in each that no cache can hold."""

    model: str
    lost_bytes: int
    tasks: int = 0


class PromptOrder:
    """Adds up what the prompts of a load lose in the providers' caches.

    Providers keep the beginning that requests share, if it is long enough, and charge less for it.
    Whatever comes behind a document is new to them in each request.
    """

    def __init__(self, accounts: TaskAccounts) -> None:
        self._accounts = accounts
        self._config = accounts.config
        # Keyed by the prompt's hash (a prompt may be large) and by the fields that determine its
        # model.
        self._prompts: OrderedDict[Hashable, _Prompt] = OrderedDict()

    def add(self, line: ValidLine) -> None:
        """Count one task."""
        task = line.task
        prompt = self._prompt_of(task.type) if task.prompt is None else task.prompt
        if len(prompt) * _MAX_CHAR_BYTES < _CACHED_BYTES or PLACEHOLDER not in prompt:
            return
        if self._config.type_settings(task.type).handler is not None:
            return  # it may do anything with the prompt
        key = hash(prompt), task.model, task.type, task.route
        known = self._prompts.get(key)
        if known is None:
            known = self._prompts[key] = _Prompt(self._accounts.of(task).model, lost_bytes(prompt))
            if len(self._prompts) > _REMEMBERED:
                self._prompts.popitem(last=False)
        known.tasks += 1
        self._prompts.move_to_end(key)

    def __str__(self) -> str:
        """Return the warning, empty without such a prompt."""
        large = [prompt for prompt in self._prompts.values() if prompt.tasks >= LARGE]
        wasting = [prompt for prompt in large if prompt.lost_bytes]
        if not wasting:
            return ""
        tasks = number_of(sum(prompt.tasks for prompt in wasting), "task")
        tokens = sum(prompt.tasks * prompt.lost_bytes for prompt in wasting) // BYTES_PER_TOKEN
        return (
            f"{PLACEHOLDER} is not last in the prompt of {tasks}, so no prompt cache of a provider "
            f"can have what comes after it: about {tokens:,} input tokens of all tasks"
            f"{self._price(wasting)}, which would cost less from a cache; move {PLACEHOLDER} to "
            "the end of the prompt"
        )

    def _price(self, wasting: list[_Prompt]) -> str:
        """Return what these tokens cost at full price; empty if a price is not known."""
        prices = self._config.prices
        if any(prompt.model not in prices for prompt in wasting):
            return ""
        micro = sum(
            prices[prompt.model].least_price_micro(prompt.tasks * prompt.lost_bytes)
            for prompt in wasting
        )
        return f" ({money(units(micro))} at the full price)"

    def _prompt_of(self, type_name: str) -> str:
        return self._config.type_settings(type_name).prompt or ""


def lost_bytes(prompt: str) -> int:
    """Return how many more bytes of a prompt a cache could hold if its document came last."""
    parts = prompt.split(PLACEHOLDER)
    if len(parts) == 1 or not parts[-1].strip():
        return 0
    before, all_parts = len(parts[0].encode()), len("".join(parts).encode())
    return _cached(all_parts) - _cached(before)


def _cached(size: int) -> int:
    return size if size >= _CACHED_BYTES else 0


class _Folders:
    """Counts documents, and remembers the folder that holds those of each place."""

    def __init__(self) -> None:
        self.count = 0
        self._folders: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._has_more = False

    def add(self, folder: tuple[str, ...]) -> None:
        """Count a document in a folder, which is given in parts."""
        self.count += 1
        place = folder[:_PLACE_PARTS]
        if place in self._folders:
            pairs = zip(self._folders[place], folder, strict=False)
            self._folders[place] = tuple(
                part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)
            )
        elif len(self._folders) < _PLACES_SHOWN:
            self._folders[place] = folder
        else:
            self._has_more = True

    def warning(self, where: str, setting: str, values: Iterable[str], separator: str) -> str:
        """Return the warning, with the setting that would allow all: its values, and these."""
        return (
            f"{number_of(self.count, 'task')} with a document by URI {where}, so they would be "
            f"dead; before you start agents, set: {setting}={separator.join(values)}"
            + (", and others" if self._has_more else "")
        )

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._folders.values())


class UnreadableDocuments:
    """Counts the documents by URI that lie where no agent may read them.

    It knows this configuration only; it opens no file and asks no server.

    Links are resolved as agents resolve them. Files that no agent may read below any root, hidden
    ones and docllm's own, are not counted.
    """

    def __init__(self, config: Config) -> None:
        self._roots, self._own = resolved(config.roots()), resolved(own_files(config))
        self._prefixes = config.document_allow
        self._outside, self._unallowed = _Folders(), _Folders()

    @property
    def files(self) -> int:
        """The number of files outside all roots."""
        return self._outside.count

    def add(self, uri: str) -> None:
        """Check the document of one task."""
        if not is_file_uri(uri):
            if not allowed(uri, self._prefixes):
                self._unallowed.add(tuple(uri.partition("?")[0].split("/")[:-1]))
            return
        target = file_of(uri)  # without one, its task fails on every agent
        if target is None or is_own(target, self._own) or is_hidden([target.name]):
            return
        if root_of(target, self._roots, self._own) is None:
            self._outside.add(target.parent.parts)

    def warnings(self) -> Iterator[str]:
        """Yield a warning for files, and one for objects and pages."""
        if self._outside.count:
            folders = (os.path.join(*parts) for parts in self._outside)  # noqa: PTH118 - a text
            yield self._outside.warning(
                "outside the folders that agents may read",
                "DOCLLM_DOCUMENT_ROOTS",
                [*map(str, self._roots), *folders],
                os.pathsep,
            )
        if self._unallowed.count:
            yield self._unallowed.warning(
                "below no prefix that agents may read",
                "DOCLLM_DOCUMENT_ALLOW",
                [*self._prefixes, *("/".join([*parts, ""]) for parts in self._unallowed)],
                ",",
            )


class Needs:
    """Counts what new tasks need of their agents that this machine, or these settings, have not.

    On embedded parts the agents run here, so what is missing here is missing there. Agents of a
    cluster run elsewhere, with an installation of their own.
    """

    def __init__(self, accounts: TaskAccounts, *, by_uri: bool, sizes: TextSizes) -> None:
        self._accounts = accounts
        self._config = accounts.config
        self._by_uri = by_uri
        self._sizes = sizes
        self._kinds = Counter[Kind]()
        self._files = 0
        self._omitting: list[str] = []
        self._omitted = 0

    def add(self, line: ValidLine) -> None:
        """Count one task with a document."""
        if line.task.uri is not None:
            self._files += is_file_uri(line.task.uri)
        if not isinstance(line, DocumentLine):
            return
        if line.task.uri is not None:
            self._kinds[line.kind] += 1
        if line.omitted:
            self._omitted += 1
            if len(self._omitting) < _NAMED:
                self._omitting.append(f"{line.document} ({', '.join(line.omitted[:_NAMED])})")

    def warnings(self, tasks: int, *, unreadable: int) -> Iterator[str]:
        """Yield what is missing for `tasks` new tasks, some with `unreadable` files."""
        if self._config.embedded:
            yield from self._missing_extra()
            yield from self._missing_handlers()
            if tasks >= EMBEDDED_TASKS:
                yield (
                    f"{tasks:,} tasks are many for the embedded ledger, which is for some hundred "
                    "thousand; for more, use Kafka and MariaDB or MySQL"
                )
        elif (elsewhere := self._files - unreadable) > 0 and not self._by_uri:
            yield (
                f"{number_of(elsewhere, 'task')} with a file of this machine by URI; each agent "
                "must find it under the same path, or load the documents with --convert"
            )
        if self._omitted:
            rest = ", ..." if self._omitted > len(self._omitting) else ""
            yield (
                f"{number_of(self._omitted, 'document')} converted without parts that are not "
                f"read: {', '.join(self._omitting)}{rest}"
            )

    def _missing_extra(self) -> Iterator[str]:
        missing = self._sizes.missing
        kinds = [(kind, count) for kind, count in self._kinds.items() if kind in missing]
        if kinds:
            total = number_of(sum(count for _, count in kinds), "document")
            counts = ", ".join(f"{count:,} {kind.value}" for kind, count in kinds)
            yield (
                f"{total} ({counts}) cannot be read by agents of this installation, so the tasks "
                f"would be dead; before you start agents, run: {INSTALL}"
            )

    def _missing_handlers(self) -> Iterator[str]:
        types = {name: self._config.type_settings(name) for name in self._accounts.types}
        for name, reason in broken_handlers(types).items():
            yield f"tasks of type {name} would be dead: its handler cannot be used: {reason}"

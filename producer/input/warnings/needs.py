"""Finds what tasks need of their agents that this machine, or these settings, have not.

On embedded parts the agents run here, so what is missing here is missing there. Agents of a
cluster run elsewhere, with an installation of their own.
"""

from collections import Counter
from collections.abc import Iterator

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.conversion import INSTALL, TextSizes
from docllm.producer.input.documents import DocumentLine
from docllm.producer.input.handler_trial import broken_handlers
from docllm.producer.input.lines import ValidLine
from docllm.schemas.documents.kind import Kind
from docllm.schemas.task.line.field_checks import is_file_uri
from docllm.schemas.text.wording import number_of

EMBEDDED_TASKS = 500_000  # from here on, embedded parts are slow
_NAMED = 3


class Needs:
    """Counts the documents of new tasks by what an agent needs to read them."""

    def __init__(self, accounts: TaskAccounts, *, by_uri: bool, sizes: TextSizes | None) -> None:
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

    def warnings(self, tasks: int, *, outside: int) -> Iterator[str]:
        """Yield what is missing for `tasks` new tasks, of which some have files `outside`."""
        if self._config.embedded:
            yield from self._missing_extra()
            yield from self._missing_handlers()
            if tasks >= EMBEDDED_TASKS:
                yield (
                    f"{tasks:,} tasks are many for the embedded ledger, which is for some hundred "
                    "thousand; for more, use Kafka and MariaDB or MySQL"
                )
        elif (elsewhere := self._files - outside) > 0 and not self._by_uri:
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
        missing = set() if self._sizes is None else self._sizes.missing
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

"""Reports on the input of `load`: bad lines, estimated cost, and later problems."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.conversion import TextSizes
from docllm.producer.input.estimate import Estimate
from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.producer.input.load_warnings import (
    LongDocuments,
    Needs,
    PastDeadlines,
    PromptOrder,
    UnreadableDocuments,
)
from docllm.producer.input.rejects import Rejects
from docllm.producer.input.time_needed import TimeNeeded
from docllm.producer.screen.output import note
from docllm.producer.text.printable import shown
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import Config
from docllm.schemas.text.wording import number_of

SHOWN_FAULTS = 20
_NAMED = 3
_NAME_CHARS = 80
_NUMBER = re.compile(r"\d+")


class Sums:
    """Sums up an input: the cost of its new tasks, and those that will fail or surprise."""

    def __init__(
        self, config: Config, *, by_uri: bool = False, sizes: TextSizes | None = None
    ) -> None:
        accounts = TaskAccounts(config)
        self.needs = Needs(accounts, by_uri=by_uri, sizes=sizes)
        self.estimate = Estimate(accounts)
        self.time = TimeNeeded(accounts)
        self.unreadable = UnreadableDocuments(config)
        self.past = PastDeadlines(SystemClock().utc_s())
        self.long = LongDocuments(accounts)
        self.prompts = PromptOrder(accounts)

    def add(self, line: ValidLine) -> None:
        """Check one task, new or not, for a document out of reach."""
        if line.task.uri is not None:
            self.unreadable.add(line.task.uri)

    def add_new(self, line: ValidLine) -> None:
        """Add one new task."""
        self.estimate.add(line)
        self.time.add(line)
        self.past.add(line)
        self.long.add(line)
        self.prompts.add(line)
        if line.document or line.task.uri:
            self.needs.add(line)

    def warnings(self) -> Iterator[str]:
        """Yield what is likely to go wrong with the tasks."""
        yield from filter(None, (str(self.past), str(self.long), str(self.prompts)))
        yield from self.time.too_large()
        yield from self.unreadable.warnings()
        yield from self.needs.warnings(self.estimate.tasks, unreadable=self.unreadable.files)


@dataclass(slots=True)
class _Alike:
    """Files with the same fault."""

    first: InvalidLine
    names: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.names) < _NAMED:
            self.names.append(shown(name, _NAME_CHARS))

    def __str__(self) -> str:
        if self.count == 1:
            return str(self.first)
        rest = ", ..." if self.count > len(self.names) else ""
        where = f"{number_of(self.count, 'file')} ({', '.join(self.names)}{rest})"
        return f"{where}: {self.first.problem}; {self.first.fix}"


class BadLineReport:
    """Reports bad lines: the first ones on stderr, all of them in the rejects file.

    Bad documents are counted first: the same fault in many of them is one line at the end.
    """

    def __init__(self, rejects: Rejects) -> None:
        self.rejects = rejects
        self._alike: dict[tuple[str, str], _Alike] = {}
        self._has_more = False

    def bad(self, line: InvalidLine) -> None:
        """Report one line.

        Raises TooManyRejectsError, and ConfigError if the rejects file cannot be written.
        """
        self.rejects.add(line)
        if line.document:
            self._group(line)
        elif self.rejects.count <= SHOWN_FAULTS:
            note(shown(str(line)))
        elif self.rejects.count == SHOWN_FAULTS + 1:
            note(f"... and more{self.rejects.place}")

    def finish(self) -> None:
        """Print the faults of documents that are not printed yet."""
        for alike in self._alike.values():
            note(shown(str(alike)))
        if self._has_more:
            note(f"... and other faults{self.rejects.place}")
        self._alike, self._has_more = {}, False

    def _group(self, line: InvalidLine) -> None:
        fault = _NUMBER.sub("N", line.problem), line.fix
        if fault not in self._alike and len(self._alike) == SHOWN_FAULTS:
            self._has_more = True
            return
        self._alike.setdefault(fault, _Alike(line)).add(line.document)

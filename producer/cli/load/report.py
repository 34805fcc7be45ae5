"""What `load` reports: bad lines, cost and later problems, what was loaded, and repairs."""

import argparse
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from docllm.producer.cli.load.input import Input
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
from docllm.producer.loading.loader import Summary
from docllm.producer.loading.preflight import InputDigest
from docllm.producer.screen.output import CommandAnswer, note
from docllm.producer.text.printable import shown
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config
from docllm.schemas.text.wording import number_of

SHOWN_FAULTS = 20
OTHERS_THERE = "their batch has other tasks of these ids; the reason above names the ways on"
_NAMED = 3
_NAME_CHARS = 80
_NUMBER = re.compile(r"\d+")


class Sums:
    """Sums up an input: the cost of its new tasks, and those that will fail or surprise."""

    def __init__(self, config: Config, *, by_uri: bool, sizes: TextSizes) -> None:
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


# ---- the answer of a load


def report_check(
    source: Input,
    options: argparse.Namespace,
    expected: Summary,
    sums: Sums,
    rejects: Rejects,
    answer: CommandAnswer,
) -> int:
    """Answer what a load would do; return 1 if it would refuse a line."""
    answer.put(loaded=0, unsent=0, **_facts(expected, sums))
    if options.dry_run:
        result = f"{_result(expected, 'to load')}{_cost(expected, sums)}"
        answer.say(f"dry run: nothing is loaded; {result}")
        _warn(sums, answer)
    if rejects.count:
        refused = number_of(rejects.count, f"bad {source.noun}")
        advice = f"{_of_others(rejects)}{_repair_advice(source)}"
        if rejects.clashing == rejects.count:
            advice = OTHERS_THERE
        answer.say(f"nothing is loaded: {refused}{rejects.place}; {advice}")
    return 1 if rejects.count else 0


def report_load(source: Input, summary: Summary, sums: Sums, answer: CommandAnswer) -> None:
    """Answer what was loaded, with warnings."""
    answer.put(loaded=summary.new, unsent=summary.unsent, **_facts(summary, sums))
    answer.say(f"batch {source.batch}: {_result(summary, 'loaded')}{_cost(summary, sums)}")
    if summary.new and summary.before > summary.known:
        answer.warn(
            f"batch {source.batch} had {number_of(summary.before, 'task')} already; "
            "to keep inputs apart, name another batch with --batch"
        )
    if summary.unsent:
        answer.warn(
            f"{number_of(summary.unsent, 'record')} not on the topic yet ({summary.errors[0]}); a "
            "running agent will send them"
        )
    _warn(sums, answer)


def _warn(sums: Sums, answer: CommandAnswer) -> None:
    for warning in sums.warnings():
        answer.warn(warning)


def report_rejects(
    source: Input, rejects: Rejects, options: argparse.Namespace, answer: CommandAnswer
) -> None:
    """Answer how to get each bad line into the same batch.

    The way is the rejects file, or the input itself for lines without text in that file.
    """
    if not rejects.count:
        return
    path, batch = shlex.quote(str(rejects.path)), shlex.quote(source.batch)
    repair_input = f"{_repair_advice(source)} with --batch {batch}"
    allowed = "".join(f" --allow-type {shlex.quote(name)}" for name in options.allow_type)
    textless = rejects.count - rejects.repairable
    repair_rejects = (
        f"repair `text` there, then: docllm load {path} --batch {batch} --group "
        f"{options.group}{allowed}"
    )
    advice = with_config(repair_rejects, options.config) if rejects.repairable else repair_input
    refused = number_of(rejects.count, f"bad {source.noun}")
    if rejects.clashing == rejects.count:
        answer.say(f"{refused} in {rejects.path}; {OTHERS_THERE}")
        return
    answer.say(f"{refused} in {rejects.path}; {_of_others(rejects)}{advice}")
    if rejects.repairable and textless:
        answer.say(
            f"{textless:,} of them have no `text` there; once the others are loaded, {repair_input}"
        )


def _of_others(rejects: Rejects) -> str:
    """Return the beginning of an advice that is not for tasks which the batch has otherwise."""
    if not rejects.clashing:
        return ""
    return f"for {rejects.clashing:,} the reason above names the ways on; for the others, "


def _repair_advice(source: Input) -> str:
    """Return the advice for lines that cannot be repaired in the rejects file."""
    return (
        "repair or convert the documents, and load them again"
        if source.documents
        else "repair the input, and load it again"
    )


def _facts(summary: Summary, sums: Sums) -> dict[str, Any]:
    """Return what a load did, or would do, for `--json`."""
    estimate = {**sums.estimate.as_json(), **sums.time.as_json()}
    return {"new": summary.new, "known": summary.known, "estimate": estimate}


def _result(summary: Summary, done: str) -> str:
    if not (summary.new or summary.known or summary.bad):
        return "the input has no task line"
    loaded = summary.known - summary.repeated
    parts = [f"{number_of(summary.new, 'task')} {done}" if summary.new else "nothing new"]
    if loaded:
        parts.append(f"{loaded:,} loaded already")
    if summary.repeated:
        parts.append(f"{number_of(summary.repeated, 'line')} repeated in the input")
    return ", ".join(parts)


def _cost(summary: Summary, sums: Sums) -> str:
    """Return the cost of the new tasks, empty if there are none."""
    return "".join(f"; {part}" for part in (sums.estimate, sums.time) if summary.new and str(part))


def changed_message(batch: str, checked: InputDigest, loaded: InputDigest) -> str:
    """Return what to do about an input that is not what was checked."""
    lines = number_of(checked.lines, "line")
    counts = f"{lines} checked, but the {loaded.lines:,} loaded lines differ from them"
    return (
        f"the input changed after it was checked: {counts}; "
        f"cancel batch {batch!r}, or load the input again when nobody writes to it"
    )

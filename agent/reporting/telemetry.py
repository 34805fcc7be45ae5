"""The counts of an agent, and its log lines about them."""

import logging
import os
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from docllm.agent.ports import Verdict
from docllm.agent.ports.outcome import (
    Cancelled,
    Dead,
    Failure,
    Moved,
    Outcome,
    Released,
    Retry,
    Snooze,
    Succeeded,
)
from docllm.agent.reporting.handler_errors import HandlerErrors
from docllm.agent.reporting.odd_answers import OddAnswers
from docllm.producer.text.printable import (
    JsonFormatter,
    ShownFormatter,
    log_only_json,
    log_to_stderr,
)
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.text.wording import number_of, one_line

_NAMES = {
    Succeeded: "succeeded",
    Dead: "dead",
    Snooze: "snoozed",
    Retry: "retried",
    Moved: "moved",
    Cancelled: "cancelled",
    Released: "released",
}
# The counts in the order of the log line, with the words used for them.
_SUMMARY = {
    "succeeded": "succeeded",
    "retried": "to be tried again",
    "dead": "dead",
    "cancelled": "cancelled",
    "moved": "put off uncounted",
    "snoozed": "put off uncounted in memory",
    "released": "given back before they began",
    "superseded": "taken over by another agent",
    "given_up": "that could not be stored",
}
BATCHES_SHOWN = 5
_INSTEAD = {
    Verdict.HELD_BACK: "moved",
    Verdict.REOPENED: "released",
    Verdict.CANCELLED: "cancelled",
    Verdict.RETRIED: "retried",
    Verdict.DIED: "dead",
}


LINE_EVERY_S = 60.0  # between two lines about one class


@dataclass(slots=True)
class ErrorCount:
    """The failures of one class of error; `example` is the newest error."""

    count: int = 0
    told: int = 0
    told_at_s: float = 0.0
    example: str = ""


class ErrorCounts:
    """Counts failures by class of error."""

    def __init__(self) -> None:
        self._classes: dict[str, ErrorCount] = {}

    def note(self, failure: Failure) -> None:
        """Count a failure."""
        kind = self._classes.setdefault(failure.error_class, ErrorCount())
        kind.count += 1
        kind.example = failure.text

    def news(self, now_s: float, every_s: float) -> dict[str, ErrorCount]:
        """Return the classes that grew since they were told, each at once and then `every_s`."""
        grown = {
            name: kind
            for name, kind in self._classes.items()
            if kind.count > kind.told and (not kind.told or now_s - kind.told_at_s >= every_s)
        }
        for kind in grown.values():
            kind.told, kind.told_at_s = kind.count, now_s
        return grown


def death_lines(dead: Mapping[str, int], examples: Mapping[str, str], group: str) -> list[str]:
    """Return a line for each error class in which tasks died, with an example.

    The last line has the command that shows more.
    """
    lines = []
    for name, number in dead.items():
        example = f", for example {one_line(examples[name])}" if name in examples else ""
        lines.append(f"{number_of(number, 'task')} dead with {name}{example}")
    if lines:
        lines[-1] += f"; more: {list_dead_command(group)}"
    return lines


def list_dead_command(group: str) -> str:
    """Return the command that shows dead tasks."""
    return f"docllm dead list --group {group}"


def dead_lines(group: str, dead_by_batch: Mapping[str, int], *, dead_lately: int = 0) -> list[str]:
    """Return lines about all dead tasks of a group whose work is done, whichever agent ran them.

    Tasks that died in this run have already been reported, with the command that shows more.
    """
    dead = [(batch, count) for batch, count in dead_by_batch.items() if count]
    if sum(count for _, count in dead) <= dead_lately:
        return []
    batches = ", ".join(f"{count:,} in {batch}" for batch, count in dead[:BATCHES_SHOWN])
    ellipsis = ", ..." if len(dead) > BATCHES_SHOWN else ""
    total = number_of(sum(count for _, count in dead), "task")
    advice = "" if dead_lately else f"; to see why: {list_dead_command(group)}"
    also = " in all" if dead_lately else ""
    return [f"dead in group {group}{also}: {total} ({batches}{ellipsis}){advice}"]


@dataclass(slots=True)
class Counts:
    """Counts since the start of this agent."""

    succeeded: int = 0
    dead: int = 0
    snoozed: int = 0
    retried: int = 0
    moved: int = 0
    cancelled: int = 0
    released: int = 0
    superseded: int = 0
    given_up: int = 0
    quarantined: int = 0
    # Attempts that began; some end before a call, for example if the document cannot be read.
    attempts: int = 0
    # Topics without the id that `topics apply` stored; they are not read.
    unknown_topics: set[str] = field(default_factory=set)
    # What differs from the settings that a topic must have, by topic.
    changed_topics: Mapping[str, str] = field(default_factory=dict)
    settings_refused: str = ""  # why changed settings are not used; empty if nothing was refused
    deaths: ErrorCounts = field(default_factory=ErrorCounts)
    # Attempts after which their tasks wait in a retry tier, but not those that a handler failed:
    # its errors are logged with their traceback.
    retries: ErrorCounts = field(default_factory=ErrorCounts)
    handler_errors: HandlerErrors = field(default_factory=HandlerErrors)
    odd_answers: OddAnswers = field(default_factory=OddAnswers)
    # Tasks that this agent took from other claims, by cause.
    resets: Counter[str] = field(default_factory=Counter)

    def note_settings_refused(self, why: str) -> None:
        """Note why changed settings are not used; an empty text takes that back."""
        self.settings_refused = why

    def note(self, outcome: Outcome, verdict: Verdict) -> None:
        """Count a settlement."""
        if verdict is Verdict.SETTLED and type(outcome) is Succeeded:
            self.succeeded += 1
        elif verdict is Verdict.SUPERSEDED:
            self.superseded += 1
        elif verdict is Verdict.GIVEN_UP:
            self.given_up += 1
        else:
            name = _INSTEAD.get(verdict) or _NAMES[type(outcome)]
            setattr(self, name, getattr(self, name) + 1)
            if name == "dead" and isinstance(outcome, Dead | Snooze):
                self.deaths.note(outcome.failure)
            if name == "retried" and isinstance(outcome, Retry):
                failure = outcome.failure
                if failure.error_class is not ErrorClass.HANDLER:
                    self.retries.note(failure)

    def death_news(self, group: str) -> list[str]:
        """Return a line for each error class in which tasks died since the last call."""
        news = self.deaths.news(0.0, 0.0)
        dead = {name: kind.count for name, kind in news.items()}
        return death_lines(dead, {name: kind.example for name, kind in news.items()}, group)

    def retry_news(self, now_s: float, group: str) -> list[str]:
        """Return a line for each class of failed attempts, at once, then once a minute.

        A class whose count has not grown is left out.
        """
        return [
            f"{number_of(kind.count, 'attempt')} failed and will be made again, with "
            f"{name}, such as: {one_line(kind.example)}; to test the LLM: "
            f"docllm check --group {group}"
            for name, kind in self.retries.news(now_s, LINE_EVERY_S).items()
        ]

    def adds_to(self, *, succeeded: int, dead: int, cancelled: int) -> bool:
        """Return whether the summary differs from these counts of the whole group."""
        if (self.succeeded, self.dead, self.cancelled) != (succeeded, dead, cancelled):
            return True
        uncompared = (self.moved, self.snoozed, self.released, self.superseded, self.given_up)
        return any((*uncompared, self.quarantined))

    def summary(self) -> str:
        """Return the counts for a log line."""
        counts = [
            f"{getattr(self, name):,} {words}"
            for name, words in _SUMMARY.items()
            if getattr(self, name) or name == "succeeded"
        ]
        if self.quarantined:
            counts.append(f"{number_of(self.quarantined, 'record')} quarantined")
        if self.attempts:
            counts.append(f"{number_of(self.attempts, 'attempt')} in all")
        return ", ".join(counts)

    def topic(self, name: str, *, known: bool) -> None:
        """Record whether a topic has the id that `topics apply` stored.

        Any other topic is not read.
        """
        if known:
            self.unknown_topics.discard(name)
        else:
            self.unknown_topics.add(name)


def log_as_json(group: str, number: int | None = None, config_file: str | None = None) -> None:
    """Write the log as JSON objects from now on, each of which names this agent."""
    common: dict[str, object] = {"group": group, "agent": f"{socket.gethostname()}:{os.getpid()}"}
    if number is not None:
        common["process"] = number
    log_only_json(JsonFormatter(common, config_file=config_file))


def configure_logging(
    level: str, number: int | None = None, config_file: str | None = None
) -> None:
    """Log to stderr: time, level, the agent's number under its parent, module, message."""
    who = f"[{number}] " if number else ""
    form = f"%(asctime)s %(levelname)-7s {who}%(name)s: %(message)s"
    log_to_stderr(ShownFormatter(form, config_file=config_file), level)
    logging.getLogger("alembic").setLevel(logging.WARNING)

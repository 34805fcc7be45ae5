"""What a person sees: results on stdout, everything else on stderr.

The output is live on a terminal. There is no logic here. Anybody may have chosen a batch's name, so
nothing in it is markup, and none of its control characters reaches a terminal.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from producer.ledger import agent_status
from producer.ledger.agent_status import AgentStatus
from producer.ledger.batch_status import BatchStatus
from producer.ledger.status import GroupStatus
from producer.ledger.store import half_loaded_message
from producer.screen.replays import unfinished_line
from producer.text.agent_report import call_text
from producer.text.columns import Column, fitted
from producer.text.output_file import give_up_standard_output, standard_output
from producer.text.printable import escaped, shown, shown_lines
from schemas.errors import ConfigError
from schemas.task.agent_report import AgentReport

SLOW_S = 10.0  # calls that run for less are not shown
NAME_LEAST = 9  # eight letters and the mark that some are missing
_STATES = {
    "total": "total",
    "pending": "pending",
    "running": "processing",
    "retrying": "retrying",
    "succeeded": "succeeded",
    "dead": "dead",
    "cancelled": "cancelled",
}
_LEAVING = (
    "tokens",
    "left",
    "per s",
    "state",
    "retrying",
    "running",
    "cancelled",
    "cost",
    "pending",
    "dead",
    "succeeded",
)


def say(text: str) -> None:
    """Write a result line to stdout; a reader that left is no error.

    Raises ConfigError when stdout cannot be written.
    """
    try:
        with standard_output():
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
    except OSError as error:
        give_up_standard_output()
        raise ConfigError(
            f"standard output cannot be written: {error.strerror}; write to a disk with free space"
        ) from None


def say_json(value: Any) -> None:
    """Write a value as JSON to stdout; on a terminal, unsafe characters come as JSON escapes."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    say(escaped(text) if sys.stdout.isatty() else text)


def complain(text: str) -> None:
    """Write an error, with what to do next, to stderr."""
    sys.stderr.write(f"error: {shown_lines(text)}\n")


def note(text: str) -> None:
    """Write a remark to stderr."""
    sys.stderr.write(f"{shown_lines(text)}\n")


class Bar:
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(self, progress: Progress | None, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def show(self, done: int, total: int | None = None) -> None:
        """Show the progress."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total)


@contextmanager
def bar(title: str) -> Iterator[Bar]:
    """Show a progress bar on stderr while the block runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield Bar(None, TaskID(0))
        return
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Bar(progress, progress.add_task(shown(title), total=None))


def status_table(status: GroupStatus, width: int) -> Text:
    """Return the batches of a group as a table of at most `width` columns.

    The title names the columns that do not fit.
    """
    batches = status.batches
    names = tuple(shown(batch.name) for batch in batches)
    columns = [Column("batch", names, left=True, least=NAME_LEAST), *_figures(batches)]
    lines, left_out = fitted(columns, width, _LEAVING)
    room = f" (no room for {', '.join(left_out)}; --json has them)" if left_out else ""
    head = Text(f"group {status.group}{room}\n", style="table.title")
    return Text.assemble(head, (lines[0], "table.header"), *(f"\n{line}" for line in lines[1:]))


def _figures(batches: Sequence[BatchStatus]) -> Iterator[Column]:
    yield Column(
        "state", tuple("cancelled" if batch.cancelled else "" for batch in batches), left=True
    )
    for name, state in _STATES.items():
        yield Column(name, tuple(str(batch.counts[state]) for batch in batches))
    yield Column("per s", tuple(f"{batch.rate_per_s:g}" for batch in batches))
    yield Column("left", tuple(_time_left(batch.eta_s) for batch in batches))
    yield Column("tokens", tuple(f"{batch.tokens_in}+{batch.tokens_out}" for batch in batches))
    yield Column("cost", tuple(f"{batch.cost:.4f}" for batch in batches))


def _time_left(eta_s: float | None) -> str:
    if eta_s is None:
        return "-"
    minutes, seconds = divmod(int(eta_s), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def status_lines(status: GroupStatus) -> list[str]:
    """Return the lines below the table: failures, agents, and why nothing runs.

    A reason that an agent's line shows already is left out.
    """
    lines = [
        f"{count} {name}  ({batch.name})"
        for batch in status.batches
        for name, count in sorted(batch.failures.items())
    ]
    lines += [half_loaded_message(batch.name) for batch in status.batches if batch.half_loaded]
    lines += [_agent_line(agent) for agent in status.agents]
    lines += agent_status.outliers(status.agents)
    if lag := agent_status.lag(status.agents):
        behind = ", ".join(f"{count:,} in {name}" for name, count in lag.items())
        lines.append(f"records that wait: {behind}")
    lines += [unfinished_line(run) for run in status.replays]
    if status.orders:
        lines.append(f"{status.orders} publish orders wait")
    if not status.batches:
        lines.append(f"no batch yet; load one: python -m producer load FILE --group {status.group}")
    reported = {reason.text for agent in status.agents for reason in agent.reasons}
    lines += [f"waiting: {reason}" for reason in status.reasons if reason not in reported]
    return [shown(line) for line in lines]


def _agent_line(agent: AgentStatus) -> str:
    notice = f"; {agent.notice}" if agent.notice else ""
    seen = f"agent {agent.name}: {agent.state}, seen {agent.silent_s:.0f} s ago"
    return f"{seen}{_work(agent.report)}{notice}"


def _work(report: AgentReport | None) -> str:
    """Return what an agent does, as a part of its line."""
    if report is None:
        return ""
    call = report.oldest_call
    is_slow = call is not None and call.running_s >= SLOW_S
    oldest = f", oldest call {call_text(call)}" if call is not None and is_slow else ""
    leaving = ", draining" if report.draining else ""
    return f", {report.running} of {report.slots} slots{leaving}{oldest}"

"""Shows the state of a group to a person: why work waits, the batches, and the agents.

Colour marks what the words say already. It queries nothing. Anybody may have chosen a batch's
name, and servers their errors, so nothing in them is markup, and none of their control characters
reaches a terminal.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rich.text import Text

from docllm.producer.ledger.status import agent_status
from docllm.producer.ledger.status.agent_status import AgentState, AgentStatus
from docllm.producer.ledger.status.batch_status import BatchStatus
from docllm.producer.ledger.status.group_status import GroupStatus
from docllm.producer.ledger.status.releases import ReleaseStatus, ReleaseSums
from docllm.producer.ledger.store import half_loaded_message
from docllm.producer.text.agent_sentences import Sentence, call_text
from docllm.producer.text.columns import Column, fitted, folded
from docllm.producer.text.pace import duration
from docllm.producer.text.printable import shown
from docllm.producer.text.urgency import Urgency
from docllm.schemas.agent_report import AgentReport
from docllm.schemas.task.result.notes import NoteKind
from docllm.schemas.text.wording import money, number_of

SLOW_S = 10.0  # age of the oldest call from which its task is named
MIN_NAME = 9  # eight letters and the mark that some are missing
# The states of tasks: the heading, the name in the counts, and the colour.
_STATES = (
    ("total", "total", ""),
    ("pending", "pending", ""),
    ("running", "processing", "cyan"),
    ("retrying", "retrying", "yellow"),
    ("succeeded", "succeeded", "green"),
    ("dead", "dead", "red"),
    ("cancelled", "cancelled", "magenta"),
)
_NOTES: dict[str, str] = {
    NoteKind.OMITTED: "without parts of the document; export names them in `omitted`",
    NoteKind.TRUNCATED_INPUT: "of a prompt that the server has cut: raise its context, and set "
    "`context_tokens`; export marks them `truncated_input`",
}
TREND = "10 min"  # the heading of the sparklines
_LEAVING = (
    "tokens",
    TREND,
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
_AGENT_STYLES = {
    AgentState.ALIVE: "green",
    AgentState.SILENT: "yellow",
    AgentState.LOST: "red",
    AgentState.STOPPED: "dim",
}

Commands = Callable[[str], str]


_BLOCKS = "\N{LOWER ONE EIGHTH BLOCK}\N{LOWER ONE QUARTER BLOCK}\N{LOWER THREE EIGHTHS BLOCK}"
_BLOCKS += "\N{LOWER HALF BLOCK}\N{LOWER FIVE EIGHTHS BLOCK}\N{LOWER THREE QUARTERS BLOCK}"
_BLOCKS += "\N{LOWER SEVEN EIGHTHS BLOCK}\N{FULL BLOCK}"
_ASCII = ":-=+*#%@"
_NONE = "."  # stands for 0, so that the minute can be seen


def sparkline(numbers: Sequence[int], encoding: str | None) -> str:
    """Return a bar for each number, the highest for the largest; a dot for 0.

    An output in an `encoding` without block characters gets ASCII in place of them.
    """
    bars = _BLOCKS if _can_show(_BLOCKS, encoding) else _ASCII
    most = max(numbers, default=0)
    return "".join(
        bars[(number * len(bars) - 1) // most] if number > 0 else _NONE for number in numbers
    )


def _can_show(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def status_text(
    status: GroupStatus,
    width: int,
    commands: Commands = str,
    encoding: str | None = "utf-8",
    height: int | None = None,
) -> Text:
    """Return the whole screen, at most `width` columns wide, except for sentences.

    The reasons why work waits come first, so that they are seen however many batches there are.
    `commands` spells the commands in a sentence; `encoding` is that of the output, which may have
    no blocks to draw with. With a `height`, batches without work are left out that do not fit.
    """
    status, hidden = (status, 0) if height is None else _fitting(status, width, height)
    table, left_out = _table(status.batches, width, encoding)
    room = f" (no room for {', '.join(left_out)}; --json has them)" if left_out else ""
    title = Text(f"group {shown(status.group)}{room}", "bold")
    reasons, batch_notes, group_notes = (
        [Text(shown(commands(line)), style) for line, style in lines]
        for lines in (_reasons(status), _batch_notes(status), _group_notes(status))
    )
    agents = list(_agent_lines(status.agents, width))
    hidden_line = [_hidden_line(hidden)] if hidden else []
    return Text("\n").join(
        [title, *reasons, *table, *hidden_line, *batch_notes, *agents, *group_notes]
    )


def _reasons(status: GroupStatus) -> Iterator[tuple[str, str]]:
    for wait in status.waits:
        style = "bold red" if wait.urgency.needs_person else "yellow"
        waiting = "" if wait.urgency is Urgency.RELEASE_WORSE else "waiting: "
        code = f" [{wait.code}]" if wait.code else ""
        yield f"{waiting}{wait.text}{_whose(wait, status.agents)}{code}", style


def _whose(wait: Sentence, agents: Sequence[AgentStatus]) -> str:
    """Return how many of the agents report this reason, if not all of them do."""
    alive = [agent for agent in agents if agent.works]
    reporting = [
        agent for agent in alive if any(reason.about == wait.about for reason in agent.reasons)
    ]
    names_it = len(reporting) == 1 and reporting[0].name in wait.text
    if not reporting or len(reporting) == len(alive) or names_it:
        return ""
    if len(reporting) == 1:
        return f" (agent {reporting[0].name})"
    return f" ({len(reporting)} of {number_of(len(alive), 'agent')})"


# ---- batches


def _fitting(status: GroupStatus, width: int, height: int) -> tuple[GroupStatus, int]:
    """Return the status with the batches that fit a screen, and how many others there are.

    Open batches go first, then those with work lately, then the newest. At least one is shown.
    """
    batches = status.batches
    room = height - _rows(status_text(replace(status, batches=()), width), width)
    if sum(map(_rows_of, batches)) <= room:
        return status, 0
    room -= 1  # a line says that others are left out
    places = sorted(
        range(len(batches)), key=lambda place: (_work_in(batches[place]), place), reverse=True
    )
    chosen: list[int] = []
    for place in places:
        room -= _rows_of(batches[place])
        if room < 0 and chosen:
            break
        chosen.append(place)
    shown_batches = tuple(batches[place] for place in sorted(chosen))
    return replace(status, batches=shown_batches), len(batches) - len(chosen)


def _rows_of(batch: BatchStatus) -> int:
    dead = sum(name.startswith("dead ") for name in batch.failures)
    late = (batch.retries is not None) + len(batch.failed_lately)
    return 1 + dead + late + batch.half_loaded + _remarks(batch)


def _remarks(batch: BatchStatus) -> int:
    has_cost_remark = batch.unpriced_calls > 0 and batch.cost is not None
    is_archived = batch.archived is not None
    return bool(batch.follow_ups) + is_archived + has_cost_remark + len(batch.notes)


def _work_in(batch: BatchStatus) -> int:
    if batch.open or batch.half_loaded:
        return 2
    return 1 if batch.per_minute else 0


def _rows(text: Text, width: int) -> int:
    """Return how many rows of a terminal a text takes."""
    return sum(max(1, -(-line.cell_len // width)) for line in text.split("\n"))


def _hidden_line(hidden: int) -> Text:
    batches = "1 more batch has" if hidden == 1 else f"{hidden:,} more batches have"
    return Text(f"{batches} no room here; status --once shows all", "dim")


def _table(
    batches: Sequence[BatchStatus], width: int, encoding: str | None
) -> tuple[list[Text], list[str]]:
    if not batches:
        return [], []
    names = tuple(shown(batch.name) for batch in batches)
    trend = tuple(sparkline(batch.per_minute, encoding) for batch in batches)
    columns = [
        Column("batch", names, left=True, least=MIN_NAME),
        *_figures(batches),
        Column(TREND, trend, left=True, style="cyan"),
    ]
    return fitted(columns, width, _LEAVING)


def _figures(batches: Sequence[BatchStatus]) -> Iterator[Column]:
    yield Column(
        "state",
        tuple(map(_state, batches)),
        left=True,
        style="magenta",
    )
    for name, state, style in _STATES:
        yield Column(name, tuple(str(batch.counts[state]) for batch in batches), style=style)
    yield Column("per s", tuple(f"{batch.rate_per_s:g}" for batch in batches))
    yield Column("left", tuple(_time_left(batch.eta_s) for batch in batches))
    yield Column("tokens", tuple(f"{batch.tokens_in}+{batch.tokens_out}" for batch in batches))
    yield Column("cost", tuple(map(_cost, batches)))


def _state(batch: BatchStatus) -> str:
    if batch.archived is not None:
        return "purged" if batch.archived.purged else "archived"
    return "cancelled" if batch.cancelled else ""


def _cost(batch: BatchStatus) -> str:
    return "-" if batch.cost is None else money(batch.cost, "")


def _time_left(eta_s: float | None) -> str:
    return "-" if eta_s is None else duration(eta_s)


def _batch_notes(status: GroupStatus) -> Iterator[tuple[str, str]]:
    """Yield which errors ended tasks, or delay them lately, and which loads have not ended."""
    for batch in status.batches:
        yield from _failures(batch)
        for kind, count in sorted(batch.notes.items()):
            results = number_of(count, "result")
            yield f"{results} {_NOTES.get(kind, f'with {kind}')}  ({batch.name})", "yellow"
    for batch in status.batches:
        if batch.unpriced_calls and batch.cost is not None:
            calls = number_of(batch.unpriced_calls, "call")
            yield f"cost without {calls} of unknown cost  ({batch.name})", ""
        if batch.half_loaded:
            yield half_loaded_message(batch.name), "yellow"
        if batch.archived is not None:
            where = f" at {batch.archived.uri}" if batch.archived.uri else ""
            then = f", purged {batch.archived.purged_at}" if batch.archived.purged_at else ""
            if not batch.archived.purged:
                named = f"--batch {shlex.quote(batch.name)} --group {status.group}"
                then = f"; to delete its rows: docllm purge {named}"
            yield f"archived{where}, {batch.archived.at}{then}  ({batch.name})", ""
        if batch.follow_ups:
            ordered = "were" if batch.follow_ups > 1 else "was"
            tasks = number_of(batch.follow_ups, "task")
            yield f"{tasks} of the total {ordered} ordered by other tasks  ({batch.name})", ""


def _failures(batch: BatchStatus) -> Iterator[tuple[str, str]]:
    for name, count in sorted(batch.failures.items()):
        if name.startswith("dead "):
            yield f"{count:,} {name}  ({batch.name})", "red"
    if batch.retries is not None:
        yield f"{batch.retries.text}  ({batch.name})", "yellow"
    for name, count in sorted(batch.failed_lately.items()):
        attempts = f"{number_of(count, 'attempt')} failed with {name} in the last 10 minutes"
        tasks = "its task is" if count == 1 else "their tasks are"
        then = f"; {tasks} tried again" if batch.open else ""
        yield f"{attempts}{then}  ({batch.name})", "yellow"


# ---- agents


def _agent_lines(agents: Sequence[AgentStatus], width: int) -> Iterator[Text]:
    """Yield how many agents there are, if there are several, and a line for each.

    Of several that stopped, only the number is shown.
    """
    yield from _agent_count(agents)
    stopped = [agent for agent in agents if agent.state is AgentState.STOPPED]
    for agent in agents:
        if agent.state is not AgentState.STOPPED or len(stopped) == 1:
            yield _agent_line(agent, width)
    if len(stopped) > 1:
        ages = f"{min(agent.silent_s for agent in stopped):.0f} s ago"
        yield Text(f"{len(stopped):,} agents stopped, the last one seen {ages}", "dim")


def _agent_count(agents: Sequence[AgentStatus]) -> Iterator[Text]:
    """Yield how many agents are alive now, are silent, and were declared lost lately."""
    states = Counter(
        agent.state
        for agent in agents
        if agent.state is not AgentState.STOPPED and not agent.is_repair_agent
    )
    if states.total() > 1:
        alive, silent, lost = (
            states[state] for state in (AgentState.ALIVE, AgentState.SILENT, AgentState.LOST)
        )
        minutes = f"{agent_status.SHOWN_S / 60:.0f} minutes"
        not_alive = f", {silent:,} silent" if silent else ""
        not_alive += f", {lost:,} lost in the last {minutes}" if lost else ""
        yield Text(f"{number_of(alive, 'agent')} alive{not_alive}")


def _agent_line(agent: AgentStatus, width: int) -> Text:
    state, style = str(agent.state), _AGENT_STYLES[agent.state]
    if agent.holds_tasks is False:
        state, style = "lost, its tasks were reset", "dim"
    call = agent.report.oldest_call if agent.report is not None else None
    is_slow = call is not None and call.running_s >= SLOW_S
    return folded(
        [
            Text.assemble(f"agent {shown(agent.name)}: ", (state, style)),
            Text(f"seen {agent.silent_s:.0f} s ago"),
            *(Text(shown(part), "yellow" if is_slow else "") for part in _work(agent)),
            *(Text(shown(f"has {named}")) for named in _tasks(agent)),
        ],
        width,
    )


def _work(agent: AgentStatus) -> Iterator[str]:
    """Yield what an agent does, or did at its last heartbeat.

    Of an agent that is lost or stopped, the last report says nothing now.
    """
    report: AgentReport | None = agent.report
    if report is None or agent.state in {AgentState.LOST, AgentState.STOPPED}:
        return
    slots = f"{report.running} of {number_of(report.slots, 'slot')}"
    if agent.state is AgentState.SILENT:
        yield f"with {slots} then"
        return
    yield slots
    if report.draining:
        yield "draining"
    call = report.oldest_call
    if call is not None:
        oldest = call_text(call) if call.running_s >= SLOW_S else f"{call.running_s:.0f} s"
        yield f"oldest call {oldest}"


def _tasks(agent: AgentStatus) -> Iterator[str]:
    """Yield the oldest tasks that an agent has, and since when."""
    if agent.tasks:
        yield ", ".join(
            f"{claimed['batch']}/{claimed['id']} since {claimed['claimed_at']:%H:%M:%S}"
            for claimed in agent.tasks
        )


# ---- everything else


def _group_notes(status: GroupStatus) -> Iterator[tuple[str, str]]:
    """Yield what concerns the whole group, for the lines below the agents."""
    for line in agent_status.outliers(status.agents):
        yield line, "yellow"
    yield from _releases(status.releases)
    if unread := agent_status.unread(status.agents):
        yield f"{number_of(unread, 'record')} of the inbox to be read, not among the tasks yet", ""
    for run in status.replays:
        from docllm.producer.screen.replays import unfinished_line  # noqa: PLC0415 - seldom any

        yield unfinished_line(run), "cyan"
    if status.orders:
        yield "records of some tasks are still to be published", ""
    for line in status.held_texts:
        yield line, "yellow"
    for ledger_wait in status.waiting:
        yield ledger_wait.text, ""
    if status.quarantined:
        yield status.quarantined_text, "yellow"
    if not status.batches:
        yield _without_batches(status), ""


def _without_batches(status: GroupStatus) -> str:
    if status.archived:
        advice = f"see: docllm status --archived --group {status.group}"
        return f"all batches are archived ({status.archived:,}); {advice}"
    return f"no batch yet; load one: docllm load FILE --group {status.group}"


def _releases(releases: Sequence[ReleaseStatus]) -> Iterator[tuple[str, str]]:
    """Yield a line for each release, if several worked in the last hour."""
    if sum(bool(release.lately.attempts) for release in releases) < 2:  # noqa: PLR2004 - several
        return
    for release in releases:
        style = "bold red" if release.is_worse else ""
        lately, total = _attempts(release.lately), _attempts(release.total)
        yield f"release {release.name}: in the last hour {lately}; in all {total}", style


def _attempts(sums: ReleaseSums) -> str:
    attempts = number_of(sums.attempts, "attempt")
    if sums.failure_rate is None:
        return attempts
    price = sums.cost_per_success
    cost = "" if price is None else f", {money(price, '')} for each success"
    return f"{attempts}, {sums.failure_rate:.1%} failed{cost}"

"""The screen of `status`: what a person reads first, and that nothing in it is markup."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from docllm.producer.ledger.long_waits import LongWait
from docllm.producer.ledger.status.agent_status import REAPER, AgentState, AgentStatus
from docllm.producer.ledger.status.batch_status import BatchStatus
from docllm.producer.ledger.status.group_status import MAX_QUARANTINED, GroupStatus
from docllm.producer.ledger.status.releases import Comparison, ReleaseStatus, ReleaseSums
from docllm.producer.ledger.status.retries import Retries
from docllm.producer.screen.group_status import status_text
from docllm.producer.text.agent_sentences import Sentence
from docllm.producer.text.urgency import Urgency
from docllm.schemas.agent_report import AgentReport, CallReport

STATES = ("total", "pending", "processing", "retrying", "succeeded", "dead", "cancelled")


def group_with(batch: str) -> GroupStatus:
    counts = dict.fromkeys(STATES, 0)
    batch_status = BatchStatus(
        name=batch,
        counts=counts,
        rate_per_s=0.0,
        eta_s=None,
        tokens_in=0,
        tokens_out=0,
        cost=0.0,
        failures={"BAD_REQUEST": 3},
    )
    agent = agent_in(AgentState.ALIVE, batch, reasons=saying(batch))
    return group_of(agent, batches=(batch_status,), waits=saying(f"{batch} waits"))


def saying(text: str) -> tuple[Sentence, ...]:
    return (Sentence(Urgency.ROUTE_PAUSED, ("route", text), text),)


def table(status: GroupStatus, width: int = 160) -> str:
    out = StringIO()
    console = Console(file=out, width=width)
    console.print(status_text(status, console.width), soft_wrap=True)
    return out.getvalue()


def large(name: str, **counts: int) -> BatchStatus:
    return BatchStatus(
        name=name,
        counts=dict.fromkeys(STATES, 0) | counts,
        rate_per_s=123.45,
        eta_s=8100.0,
        tokens_in=1_234_567_890,
        tokens_out=987_654_321,
        cost=1148.1234,
    )


NIGHT = large("night", total=1)
_CUT = (
    "of a prompt that the server has cut: raise its context, and set `context_tokens`; export "
    "marks them `truncated_input`"
)


def call_of(running_s: float) -> CallReport:
    return CallReport(task=7, batch="b", key="k", route="r", running_s=running_s)


def agent_in(
    state: AgentState, name: str = "a", silent_s: float = 1.0, **values: Any
) -> AgentStatus:
    given: dict[str, Any] = {"id": 1, "version": "1"} | values
    return AgentStatus(name=name, state=state, silent_s=silent_s, **given)


def group_of(
    *agents: AgentStatus,
    batches: tuple[BatchStatus, ...] = (NIGHT,),
    orders: int = 0,
    waits: tuple[Sentence, ...] = (),
) -> GroupStatus:
    return GroupStatus(
        group="g", ledger="l", agents=agents, batches=batches, orders=orders, waits=waits
    )


def large_group(*batches: BatchStatus) -> GroupStatus:
    return group_of(batches=batches)


@pytest.mark.parametrize(
    "name", ["[/INST]", "report [draft]", "[red]x", ":smile:", "[link=http://h]x[/link]"]
)
def test_a_name_is_no_markup(name: str) -> None:
    """A batch name is never read as markup.

    A record of the inbox names its batch. One name would end `status` for the whole group, another
    would be shown as something else.
    """
    assert name in table(group_with(name))


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_figure_of_a_million_tasks_is_cut(width: int) -> None:
    """No figure of a million tasks is cut, since a cut figure is wrong.

    The name is cut first, then columns that `--json` has too, which is said.
    """
    full = {state: 1_000_000 + place for place, state in enumerate(STATES)}
    text = table(large_group(large("reports-of-a-whole-year", **full), large("b", total=7)), width)
    head, *lines = text.splitlines()

    assert all(str(count) in lines[1].split() for count in full.values())
    assert lines[1].split()[-1] == "1148.1234"
    assert lines[1].startswith("reports-")
    assert max(map(len, lines)) <= width
    assert head == (
        "group g"
        if width == 160
        else f"group g (no room for {'tokens, left, per s' if width == 80 else 'tokens'}; "
        "--json has them)"
    )
    assert all(not figure.endswith("…") for line in lines for figure in line.split()[1:])


def test_the_usual_columns_fit_a_small_terminal() -> None:
    """A column that is empty in every batch is dropped, so that rate and time left are seen."""
    lines = table(
        large_group(large("reports-of-a-year", total=1_000_000, pending=999_000, succeeded=1_000)),
        80,
    ).splitlines()

    assert lines[1].split() == "batch total pending succeeded per s left cost".split()
    assert lines[2].split()[1:] == ["1000000", "999000", "1000", "123.45", "2:15:00", "1148.1234"]


MINUTES = (0, 0, 0, 10, 20, 40, 80, 80, 40, 10)


@pytest.mark.parametrize(
    ("encoding", "bars"),
    [("utf-8", "...\u2581\u2582\u2584\u2588\u2588\u2584\u2581"), ("ascii", "...:-+@@+:")],
)
def test_what_ended_in_ten_minutes_is_a_sparkline(encoding: str, bars: str) -> None:
    """A batch without work in that time has none; the column is there if any batch has one."""
    lively = replace(large("a", total=400), per_minute=MINUTES)
    still = large("b", total=1)
    group = large_group(lively, still)

    head, first, second = status_text(group, 120, encoding=encoding).plain.splitlines()[1:]

    assert head.endswith("  10 min")
    assert first.endswith(f"  {bars}")
    assert second.endswith("1148.1234")
    assert "10 min" not in status_text(large_group(still), 120).plain


def test_a_small_batch_has_its_sparkline_on_a_small_terminal() -> None:
    """Where it has no room it leaves before any figure does, and the title says so."""
    small = BatchStatus(
        name="reports",
        counts=dict.fromkeys(STATES, 0)
        | {"total": 1000, "pending": 500, "processing": 64, "succeeded": 430, "dead": 6},
        rate_per_s=4.2,
        eta_s=87.0,
        tokens_in=120_000,
        tokens_out=20_000,
        cost=1.2345,
        per_minute=MINUTES,
    )
    title, head, row = status_text(large_group(small), 80).plain.splitlines()
    assert (head[-6:], row[-1], max(map(len, (title, head, row))) <= 80) == (
        "10 min",
        "\u2581",
        True,
    )

    title, head, row = status_text(large_group(small), 70).plain.splitlines()
    assert "no room for tokens, 10 min; --json has them" in title
    assert head.split()[-1] == "cost"
    assert max(map(len, (head, row))) <= 70


def test_a_screen_has_the_batches_with_work() -> None:
    """A live screen cannot be scrolled: batches without work leave, the oldest first."""
    batches = [large(f"b{number:03}", total=1, succeeded=1) for number in range(100)]
    batches[3] = large("b003", total=2, pending=2)
    batches[4] = replace(batches[4], per_minute=MINUTES)
    batches[50] = replace(batches[50], failures={"dead AUTH": 1})
    wait = Sentence(Urgency.NO_AGENT, ("group", "g"), "no agent alive " + "x" * 100)
    group = replace(large_group(*batches), waits=(wait,))

    def lines(status: GroupStatus, height: int) -> list[str]:
        return status_text(status, 80, height=height).plain.splitlines()

    found = lines(group, 12)
    assert [line[:4] for line in found if line.startswith("b0")] == [
        "b003",
        "b004",
        *(f"b{number:03}" for number in range(95, 100)),
    ]
    assert found[-1] == "93 more batches have no room here; status --once shows all"
    assert len(found) + 1 == 12  # the reason takes two rows
    assert len(lines(group, 200)) == 104  # all of them, and the line about dead tasks
    assert len(lines(large_group(*batches[:3]), 5)) == 5
    assert lines(group, 3)[3].startswith("b003")
    assert lines(large_group(*batches[:2]), 3)[-1].startswith("1 more batch has no room here")


def test_results_with_notes_are_counted_below_their_batch() -> None:
    """A kind that only a newer version knows is named too."""
    notes = {"omitted": 12, "truncated_input": 1, "newer": 2}
    lines = table(large_group(replace(NIGHT, notes=notes), large("b", total=1))).splitlines()

    assert [line for line in lines if "(night)" in line] == [
        "2 results with newer  (night)",
        "12 results without parts of the document; export names them in `omitted`  (night)",
        f"1 result {_CUT}  (night)",
    ]
    assert not any("(b)" in line for line in lines)


def test_a_cancelled_batch_is_marked_beside_its_name() -> None:
    """A cancelled batch is marked beside its name, even if no task waited.

    If none was cancelled, nothing is said.
    """
    lines = table(
        large_group(replace(large("a", total=1), cancelled=True), large("b", total=1))
    ).splitlines()

    assert lines[1].split()[:3] == ["batch", "state", "total"]
    assert lines[2].split()[:3] == ["a", "cancelled", "1"]
    assert lines[3].split()[:2] == ["b", "1"]
    assert "state" not in table(large_group(large("b", total=1)))


def test_no_control_character_of_a_name_reaches_a_terminal() -> None:
    """Control characters of a name, which could move the cursor, do not reach the terminal."""
    text = status_text(group_with("a\x1b[2J\nb\x9b1m"), 80).plain

    assert all(line.isprintable() for line in text.splitlines())
    assert "a [2J b 1m" in text


def test_reasons_come_first_and_once() -> None:
    """Reasons stand above the batches, where thousands of batches hide none of them.

    A reason of some of the agents names them; one of all agents does not.
    """
    waits = Sentence(Urgency.ROUTE_PAUSED, ("route_paused", "r"), "route r waits 2 s: RATE: 429")
    stuck = Sentence(Urgency.LOOP_BLOCKED, ("blocked", "a"), "the event loop of a is blocked")
    guard = Sentence(Urgency.GUARD_RAISED, ("guard", "night"), "guard of batch night: 10 of 10")
    agents = [
        agent_in(AgentState.ALIVE, name, id=number, reasons=(waits,))
        for number, name in enumerate("abc")
    ]
    group = group_of(*agents, waits=(guard, waits))

    def reasons(*, agents: Sequence[AgentStatus]) -> list[str]:
        lines = status_text(replace(group, agents=tuple(agents)), 160).plain.splitlines()
        return lines[1 : next(i for i, line in enumerate(lines) if line.startswith("batch"))]

    assert reasons(agents=agents) == [
        f"waiting: {guard.text} [guard_raised]",
        f"waiting: {waits.text} [route_paused]",
    ]
    calm = replace(agents[0], reasons=())
    assert (
        reasons(agents=[calm, *agents[1:]])[1]
        == f"waiting: {waits.text} (2 of 3 agents) [route_paused]"
    )
    assert reasons(agents=[calm, agents[1]])[1] == f"waiting: {waits.text} (agent b) [route_paused]"
    group = replace(group, waits=(stuck,))
    blocked = replace(agents[0], reasons=(stuck,))
    assert reasons(agents=[blocked, *agents[1:]]) == [f"waiting: {stuck.text} [loop_blocked]"]


def styled(text: Text, part: str) -> set[str]:
    """Return the styles of a part of a text."""
    place = text.plain.index(part)
    return {
        str(span.style)
        for span in text.spans
        if span.start <= place and place + len(part) <= span.end
    }


def test_colours_have_a_meaning() -> None:
    """What needs a person is red, what ends by itself is yellow, and success is green."""
    waits = tuple(Sentence(urgency, (urgency.name, ""), f"{urgency.name} ") for urgency in Urgency)
    agents = [agent_in(state, state, id=number) for number, state in enumerate(AgentState)]
    batch = replace(
        large("night", total=1201, succeeded=1001, dead=31, cancelled=41, processing=29),
        failures={"dead AUTH": 31, "tried again RATE": 9},
        failed_lately={"RATE": 2},
    )

    text = status_text(
        group_of(*agents, batches=(batch,), orders=1, waits=waits),
        200,
    )

    for urgency in Urgency:
        colour = "bold red" if urgency.needs_person else "yellow"
        assert colour in styled(text, f"{urgency.name} "), urgency
    for part, colour in (
        ("1001", "green"),
        ("31", "red"),
        ("41", "magenta"),
        ("29", "cyan"),
        ("31 dead AUTH", "red"),
        ("2 attempts failed with RATE in the last 10 minutes", "yellow"),
    ):
        assert colour in styled(text, part), part
    for state, colour in zip(AgentState, ("green", "yellow", "red", "dim"), strict=True):
        of_agent = text[text.plain.index(f"agent {state}: ") + len(f"agent {state}: ") :]
        assert colour in styled(of_agent, str(state)), state


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        (
            {"retrying": 1},
            "2 attempts failed with RATE in the last 10 minutes; their tasks are tried again  (a)",
        ),
        ({"dead": 2}, "2 attempts failed with RATE in the last 10 minutes  (a)"),
    ],
)
def test_only_open_tasks_are_tried_again(counts: dict[str, int], line: str) -> None:
    """The attempts of tasks that have ended still stand there for ten minutes."""
    failed = replace(large("a", **counts), failed_lately={"RATE": 2})

    assert line in table(group_of(batches=(failed,))).splitlines()


def test_a_lost_agent_whose_tasks_are_back_is_no_alarm() -> None:
    """The loss is said in words and dim; the agent's last report says nothing about now."""
    report = AgentReport(
        slots=64,
        running=3,
        oldest_call=call_of(75.0),
    )
    lost = agent_in(AgentState.LOST, "a", 20.0, report=report, holds_tasks=True)

    assert lines_of(lost) == ["agent a: lost, seen 20 s ago"]
    assert lines_of(replace(lost, holds_tasks=False)) == [
        "agent a: lost, its tasks were reset, seen 20 s ago"
    ]


def test_a_silent_agents_slots_are_those_of_its_last_heartbeat() -> None:
    """Nobody knows for how long its calls have run."""
    report = AgentReport(
        slots=64,
        running=3,
        oldest_call=call_of(75.0),
    )

    assert lines_of(agent_in(AgentState.SILENT, "a", 9.0, report=report)) == [
        "agent a: silent, seen 9 s ago, with 3 of 64 slots then"
    ]


def test_one_thing_is_not_plural() -> None:
    """One slot is said in the singular."""
    agent = agent_in(AgentState.ALIVE, report=AgentReport(slots=1, running=1))
    group = group_of(agent, orders=1)

    assert below(group) == [
        "agent a: alive, seen 1 s ago, 1 of 1 slot",
        "records of some tasks are still to be published",
    ]


def test_tasks_that_a_refused_call_holds_for_long_are_named() -> None:
    """The line says for how long, and how to end the wait."""
    until = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - the ledger's times have no zone
    one, many = LongWait("slow", 1, 598.0, until), LongWait("a b", 20, 61.0, until)

    assert below(group_of()) == []
    assert below(replace(group_of(), held=(one, many))) == [
        (
            "after a refused call on route slow, 1 task waits for 0:09:58, until "
            "2026-01-02T03:04:05Z; to call now: docllm agent resume slow --group g"
        ),
        (
            "after a refused call on route a b, 20 tasks wait, the first for 0:01:01, until "
            "2026-01-02T03:04:05Z; to call now: docllm agent resume 'a b' --group g"
        ),
    ]


def test_quarantined_records_are_counted_with_the_command_that_shows_them() -> None:
    """No more than a limit are counted, so there may be more than that."""
    group = group_of()

    for count, words in ((1, "1 record"), (MAX_QUARANTINED, "at least 1,000 records")):
        (line,) = below(replace(group, quarantined=count))
        assert line.startswith(f"quarantined, because no task of docllm: {words}; see: ")
        assert line.endswith("dead list --group g")


def reporting(name: str, report: AgentReport, version: str = "1") -> AgentStatus:
    return agent_in(AgentState.ALIVE, name, report=report, version=version)


def below(group: GroupStatus) -> list[str]:
    """Return the lines below the table."""
    return status_text(group, 160).plain.splitlines()[2 + len(group.batches) :]


def lines_of(*agents: AgentStatus) -> list[str]:
    return below(group_of(*agents))


@pytest.mark.parametrize(
    ("running_s", "shown"), [(9.4, "9 s"), (75.0, "75 s: task k of batch b on route r")]
)
def test_an_agents_line_shows_its_slots_and_its_oldest_call(running_s: float, shown: str) -> None:
    """The task of the oldest call is named once the call has run for some seconds."""
    call = call_of(running_s)
    report = AgentReport(slots=64, running=3, oldest_call=call, draining=True)

    assert lines_of(reporting("a", report)) == [
        f"agent a: alive, seen 1 s ago, 3 of 64 slots, draining, oldest call {shown}"
    ]


def test_several_agents_are_counted_by_state() -> None:
    """Agents that live, or were lost lately, are counted; stopped ones have a line of their own."""
    states = (AgentState.ALIVE, AgentState.ALIVE, AgentState.LOST, AgentState.SILENT)
    agents = [agent_in(state, str(state), 8.0) for state in states]
    stopped = agent_in(AgentState.STOPPED, "s", 8.0)

    reaper = agent_in(AgentState.ALIVE, f"r{REAPER}", 8.0)

    assert lines_of(*agents, reaper, stopped)[0] == (
        "2 agents alive, 1 silent, 1 lost in the last 10 minutes"
    )
    assert lines_of(agents[0], stopped)[0].startswith("agent alive: alive")


def test_agents_that_differ_from_the_others_are_named() -> None:
    """Agents with other settings, or of another version, are named; equal ones are not."""
    same = [reporting(name, AgentReport(settings="s")) for name in "abc"]
    assert len(lines_of(*same)) == 4

    odd = [reporting(name, AgentReport(settings="t"), version="2") for name in "de"]

    assert lines_of(*odd, *same)[6:] == [
        "d, e have another version than a",
        "d, e have other settings than a",
    ]
    many = [reporting(f"d{number}", AgentReport(settings=f"{number}")) for number in range(7)]
    assert lines_of(*many, *same)[11:] == [
        "d0, d1, d2, d3, d4 and 2 more have other settings than a"
    ]


def test_only_records_that_are_no_tasks_yet_are_counted_beside_the_tasks() -> None:
    """A topic's lag is no second figure for what waits: it has records of finished tasks too."""
    lags: list[dict[str, int]] = [
        {"tasks.bulk": 7, "tasks": 1200, "inbox": 4},
        {"tasks": 34, "retry.30s": 5, "inbox": 3},
    ]

    lines = lines_of(*(reporting(f"{lag}", AgentReport(lag=lag)) for lag in lags))

    assert lines[3:] == ["7 records of the inbox to be read, not among the tasks yet"]


def test_a_retry_is_shown_with_its_times() -> None:
    """Below its batch: how many wait, until when, and for which attempt."""
    now = datetime(2026, 1, 31, 8)  # noqa: DTZ001 - as the ledger stores it
    retries = Retries(
        tasks=1,
        number=3,
        is_last=False,
        first_at=now,
        last_at=now + timedelta(hours=1),
        now=now,
        left_s=0.0,
    )

    assert below(group_of(batches=(replace(NIGHT, retries=retries),))) == [
        "1 waits for its third try at 08:00 UTC, the last at 09:00 UTC  (night)"
    ]


def test_no_part_of_an_agents_line_is_broken() -> None:
    """On a small terminal the line goes on below; a pipe gets it whole."""
    call = call_of(0.4)
    agent = reporting("vm:5220 (rehearsal LLM)", AgentReport(slots=64, running=3, oldest_call=call))
    group = group_of(agent, batches=())
    start = "agent vm:5220 (rehearsal LLM): alive, seen 1 s ago, 3 of 64 slots,"

    assert status_text(group, 72).plain.splitlines()[1:3] == [start, "    oldest call 0 s"]
    assert f"{start} oldest call 0 s" in status_text(group, 500).plain.splitlines()


def test_agents_that_stopped_are_one_line() -> None:
    """Each short run leaves an agent that stopped."""
    one, two = (agent_in(AgentState.STOPPED, f"a{n}", 9.0 + n) for n in (1, 2))

    assert lines_of(one) == ["agent a1: stopped, seen 10 s ago"]
    assert lines_of(one, two) == ["2 agents stopped, the last one seen 10 s ago"]


def test_a_batch_that_never_had_a_task_is_not_shown() -> None:
    """A load of which every line was bad leaves one; a load that runs is shown."""
    loading = replace(large("b"), half_loaded=True)
    group = large_group(large("a"), loading, large("c", total=1))

    shown = group.without_empty_batches().batches

    assert [batch.name for batch in shown] == ["b", "c"]


def test_releases_that_work_beside_each_other_are_shown() -> None:
    """One alone is not; a worse one is red, and its name is a stranger's text."""
    worked, idle = ReleaseSums(90, 10, 450_000), ReleaseSums()
    bad = Comparison(100, 0.1, 0.02, 9.0)
    first = ReleaseStatus("1.0", worked, ReleaseSums(1800, 200, 9_000_000))
    second = ReleaseStatus("[red]\x1b[2J", worked, worked, bad)

    both = status_text(replace(large_group(), releases=(first, second)), 200)
    alone = status_text(
        replace(large_group(), releases=(first, replace(second, lately=idle))), 200
    ).plain

    line = "release 1.0: in the last hour 100 attempts, 10.0% failed, 0.0050 for each success"
    assert f"{line}; in all 2,000 attempts, 10.0% failed, 0.0050 for each success" in both.plain
    assert "bold red" in styled(both, "release [red]")
    assert "\x1b" not in both.plain
    assert "release" not in alone


def test_an_unknown_cost_is_not_shown_as_zero() -> None:
    """A sum of known and unknown costs says how many calls are not in it."""
    unknown = replace(NIGHT, name="day", cost=None, unpriced_calls=9)
    partly = replace(NIGHT, unpriced_calls=3)

    lines = status_text(large_group(unknown, partly), 120).plain.splitlines()
    assert lines[2].endswith(" -")
    assert "cost without 3 calls of unknown cost  (night)" in lines
    assert not [line for line in lines if "9 calls" in line]

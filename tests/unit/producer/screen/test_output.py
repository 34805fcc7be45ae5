"""Output reaches the person, or they learn why not."""

import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from producer.ledger.agent_status import AgentState, AgentStatus
from producer.ledger.batch_status import BatchStatus
from producer.ledger.status import GroupStatus
from producer.screen.output import bar, complain, note, status_lines, status_table
from producer.text.agent_report import Sentence
from schemas.task.agent_report import AgentReport, CallReport

STATES = ("total", "pending", "processing", "retrying", "succeeded", "dead", "cancelled")
SAY = "from producer.screen.output import say; say('a line')"


def said(out: Path) -> subprocess.CompletedProcess[str]:
    with out.open("w") as file:
        return subprocess.run(
            [sys.executable, "-c", SAY], check=False, stdout=file, stderr=subprocess.PIPE, text=True
        )


def test_a_line_is_written_at_once(tmp_path: Path) -> None:
    """A line is written at once, and does not stay in a buffer."""
    ended = said(tmp_path / "out")

    assert (ended.returncode, (tmp_path / "out").read_text()) == (0, "a line\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_full_device_is_a_usage_error() -> None:
    """A full device is a usage error, and no bug of ours.

    The message says what cannot be written, and the interpreter does not complain again at its end.
    """
    ended = said(Path("/dev/full"))

    assert "standard output cannot be written: No space left on device" in ended.stderr
    assert "Exception ignored" not in ended.stderr
    assert ended.returncode == 1


def test_a_reader_that_left_is_no_error() -> None:
    """`| head` ends a program silently."""
    with subprocess.Popen(
        [sys.executable, "-c", SAY], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        errors = program.stderr.read()

    assert (program.returncode, errors) == (0, b"")


def group_with(batch: str) -> GroupStatus:
    counts = dict.fromkeys(STATES, 0)
    batch_status = BatchStatus(batch, counts, 0.0, None, 0, 0, 0.0, {"BAD_REQUEST": 3})
    agent = AgentStatus(1, batch, AgentState.ALIVE, 1.0, reasons=saying(batch))
    return GroupStatus("g", "l", (agent,), (batch_status,), 0, (f"{batch} waits",))


def saying(text: str) -> tuple[Sentence, ...]:
    return (Sentence(1, ("route", "default"), text),)


def table(status: GroupStatus, width: int = 160) -> str:
    out = StringIO()
    console = Console(file=out, width=width)
    console.print(status_table(status, console.width))
    return out.getvalue()


def large(name: str, **counts: int) -> BatchStatus:
    return BatchStatus(
        name,
        dict.fromkeys(STATES, 0) | counts,
        123.45,
        8100.0,
        1_234_567_890,
        987_654_321,
        1148.1234,
    )


def large_group(*batches: BatchStatus) -> GroupStatus:
    return GroupStatus("g", "l", (), batches, 0, ())


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

    assert lines[1].split() == [
        "batch",
        "total",
        "pending",
        "succeeded",
        "per",
        "s",
        "left",
        "cost",
    ]
    assert lines[2].split()[1:] == ["1000000", "999000", "1000", "123.45", "2:15:00", "1148.1234"]


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
    status = group_with("a\x1b[2J\nb\x9b1m")

    lines = status_lines(status)

    assert "\x1b" not in table(status) + "".join(lines)
    assert all(line.isprintable() for line in lines)


def test_an_agents_reason_to_wait_is_shown_once() -> None:
    """An agent's notice appears once, in its own line, apart from its last heartbeat.

    Reasons that no agent gives follow.
    """
    waits = "route default waits 2 s: RATE: 429"
    agents = (
        AgentStatus(1, "a", AgentState.ALIVE, 1.0, reasons=saying(waits)),
        AgentStatus(2, "b", AgentState.ALIVE, 2.0),
    )
    guard = "guard of batch night: 10 of 10"

    assert status_lines(
        GroupStatus("g", "l", agents, (large("night", total=1),), 0, (guard, waits))
    ) == [
        f"agent a: alive, seen 1 s ago; {waits}",
        "agent b: alive, seen 2 s ago",
        f"waiting: {guard}",
    ]


def reporting(name: str, report: AgentReport, version: str = "1") -> AgentStatus:
    return AgentStatus(1, name, AgentState.ALIVE, 1.0, version, report)


def lines_of(*agents: AgentStatus) -> list[str]:
    return status_lines(GroupStatus("g", "l", agents, (large("night", total=1),), 0, ()))


@pytest.mark.parametrize(
    ("running_s", "shown"), [(9.9, ""), (75.0, ", oldest call 75 s: task k of batch b on route r")]
)
def test_an_agents_line_shows_its_slots_and_a_slow_call(running_s: float, shown: str) -> None:
    """The oldest call is news once it has run for some seconds."""
    call = CallReport(7, "b", "k", "r", running_s)
    report = AgentReport(slots=64, running=3, oldest_call=call, draining=True)

    assert lines_of(reporting("a", report)) == [
        f"agent a: alive, seen 1 s ago, 3 of 64 slots, draining{shown}"
    ]


def test_agents_that_differ_from_the_others_are_named() -> None:
    """Agents with other settings, or of another version, are named; equal ones are not."""
    same = [reporting(name, AgentReport(settings="s")) for name in "abc"]
    assert len(lines_of(*same)) == 3

    odd = [reporting(name, AgentReport(settings="t"), version="2") for name in "de"]

    assert lines_of(*odd, *same)[5:] == [
        "d, e have another version than a",
        "d, e have other settings than a",
    ]
    many = [reporting(f"d{number}", AgentReport(settings=f"{number}")) for number in range(7)]
    assert lines_of(*many, *same)[10:] == [
        "d0, d1, d2, d3, d4 and 2 more have other settings than a"
    ]


def test_records_that_wait_are_shown_by_topic() -> None:
    """The lag of all living agents is added; a topic without lag is not news."""
    lags: list[dict[str, int]] = [{"tasks": 1200, "inbox": 0}, {"tasks": 34, "retry.30s": 5}]

    lines = lines_of(*(reporting(f"{lag}", AgentReport(lag=lag)) for lag in lags))

    assert lines[2:] == ["records that wait: 1,234 in tasks, 5 in retry.30s"]


def test_a_title_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar's title is no markup: it holds the batch's name."""
    terminal = StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)

    with bar("loading x[/INST]\x07") as shown:
        shown.show(1, 1)

    assert "loading x[/INST]" in terminal.getvalue()
    assert "\x07" not in terminal.getvalue()


def test_notes_hold_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A note holds no control characters: errors name fields and batches as others wrote them."""
    note("one\x1b[31m\ntwo")
    complain("three\x1b[31m")

    assert capsys.readouterr().err == "one [31m\ntwo\nerror: three [31m\n"

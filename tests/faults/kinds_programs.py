"""Faults of docllm's own programs: kills, freezes, drains, storms, and a clock that jumps."""

import signal
from datetime import datetime
from pathlib import Path
from time import time
from typing import Any

from sqlalchemy.engine import Row

from tests.faults import skew
from tests.faults.fault import PATIENCE_S, Cost, Fault, Kind
from tests.faults.site import AGENTS, EXPORTER, REAPER, SKEWED, pause, quiet, wait_for
from tests.integration.support.programs import Program

END_S = 40.0
STORM_S = 3.0
JUMP_S = (600.0, 86_400.0)


def kill(fault: Fault) -> None:
    """Kill -9 an agent that works."""
    program = fault.working()
    fault.begin(program.name, fault.seat)
    _end(fault, program, signal.SIGKILL)
    fault.bit = program.code == -signal.SIGKILL


def kill_all(fault: Fault) -> None:
    """Kill -9 every agent at once."""
    fault.working()
    programs = {
        seat: program
        for seat in AGENTS
        if (program := fault.site.seats.program_in(seat)) is not None
    }
    fault.begin("all agents", *programs)
    for seat, program in programs.items():
        fault.site.seats.end_program(seat, program, signal.SIGKILL)
    fault.bit = wait_for(
        lambda: all(victim.code == -signal.SIGKILL for victim in programs.values()), END_S
    )
    fault.evidence["pids"] = [victim.pid for victim in programs.values()]


def kill_reaper(fault: Fault) -> None:
    """Kill -9 the program that reaps, relays and sweeps beside the agents."""
    seats = fault.site.seats
    if (
        not wait_for(lambda: seats.program_in(REAPER) is not None, PATIENCE_S)
        or (program := seats.program_in(REAPER)) is None
    ):
        return
    registered = wait_for(lambda: quiet(lambda: _incarnations(fault, program.pid)), PATIENCE_S)
    fault.begin(program.name)
    seats.end_program(REAPER, program, signal.SIGKILL)
    fault.bit = wait_for(lambda: program.code == -signal.SIGKILL, END_S) and registered


def kill_exporter(fault: Fault) -> None:
    """Kill -9 the program that exports metrics."""
    seats = fault.site.seats
    if (
        not wait_for(lambda: seats.program_in(EXPORTER) is not None, PATIENCE_S)
        or (program := seats.program_in(EXPORTER)) is None
    ):
        return
    fault.begin(program.name)
    seats.end_program(EXPORTER, program, signal.SIGKILL)
    fault.bit = wait_for(lambda: program.code == -signal.SIGKILL, END_S)


def freeze(fault: Fault) -> None:
    """Freeze an agent (SIGSTOP) for a while, then resume it."""
    program = fault.working()
    fault.begin(program.name, fault.seat)
    program.signal(signal.SIGSTOP)
    fault.bit = wait_for(lambda: _state(program.pid) == "T", END_S)
    pause(fault.hold_s)
    program.signal(signal.SIGCONT)


def freeze_long(fault: Fault) -> None:
    """Freeze an agent until others have declared it lost, then resume it."""
    program = fault.working()
    fault.begin(program.name, fault.seat)
    program.signal(signal.SIGSTOP)
    fault.hold(lambda: any(row.lost_at is not None for row in _incarnations(fault, program.pid)))
    program.signal(signal.SIGCONT)


def drain(fault: Fault) -> None:
    """Ask an agent to leave (SIGTERM)."""
    program = fault.working()
    fault.begin(program.name, fault.seat)
    _end(fault, program, signal.SIGTERM)
    fault.bit = program.code is not None


def hurry(fault: Fault) -> None:
    """Ask an agent to leave twice at once, so that its calls end."""
    program = fault.working()
    fault.begin(program.name, fault.seat)
    fault.site.seats.end_program(fault.seat, program, signal.SIGTERM)
    pause(fault.chance.uniform(0.05, 0.5))
    if program.running:
        _end(fault, program, signal.SIGTERM)
    fault.bit = program.code is not None


def storm(fault: Fault) -> None:
    """Let agents join and leave the group, one after another."""
    fault.working()
    before = fault.told(fault.site.members)
    fault.begin("the group")
    joined = 0
    for _ in range(max(2, round(fault.hold_s / STORM_S))):
        extra = fault.site.agent(fault.seat)
        fault.site.log.note("started", seat=fault.seat, program=extra.name, pid=extra.pid)
        joined += wait_for(lambda: (quiet(fault.site.members) or 0) > before, PATIENCE_S)
        extra.signal(signal.SIGTERM)
        code = extra.wait(END_S)
        fault.site.log.note(
            "ended", seat=fault.seat, program=extra.name, pid=extra.pid, code=code, by="fault"
        )
    fault.evidence["joined"] = joined
    fault.bit = joined > 0


def clock_forward(fault: Fault) -> None:
    """Set the clock of one agent forward."""
    _jump(fault, fault.chance.uniform(*JUMP_S))


def clock_back(fault: Fault) -> None:
    """Set the clock of one agent back."""
    _jump(fault, -fault.chance.uniform(*JUMP_S))


def _jump(fault: Fault, by_s: float) -> None:
    program = fault.working()
    fault.begin(program.name, SKEWED)
    fault.evidence["by_s"] = round(by_s)
    skew.jump(fault.site.folder, by_s)
    logged_chars = len(program.err)
    fault.hold(
        lambda: any(
            abs(at_s - time() - by_s) < abs(by_s) / 2 for at_s in _times(program.err[logged_chars:])
        )
    )
    skew.jump(fault.site.folder, 0)


def _times(text: str) -> list[float]:
    """Return the times at the beginnings of log lines."""
    times_s = []
    for line in text.splitlines():
        try:
            times_s.append(
                datetime.strptime(line[:19], "%Y-%m-%d %H:%M:%S").astimezone().timestamp()
            )
        except ValueError:
            continue
    return times_s


def _end(fault: Fault, program: Program, number: signal.Signals) -> None:
    fault.site.seats.end_program(fault.seat, program, number)
    wait_for(lambda: program.code is not None, END_S)
    fault.evidence["code"] = program.code


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _incarnations(fault: Fault, pid: int) -> list[Row[Any]]:
    return [
        row
        for row in fault.site.deployment.ledger.agents()
        if row.name.split(" ")[0].endswith(f":{pid}")
    ]


KINDS = (
    Kind("agent-kill", kill, ("{seat}",), (0, 0), Cost.LEASE, 4.0),
    Kind("agents-kill", kill_all, AGENTS, (0, 0), Cost.LEASE),
    Kind("agent-freeze", freeze, ("{seat}",), (2, 5), weight=2.0),
    Kind("agent-freeze-long", freeze_long, ("{seat}",), (14, 25), Cost.LEASE, 2.0),
    Kind("agent-drain", drain, ("{seat}",), (0, 0), Cost.REPLY, 2.0),
    Kind("agent-hurry", hurry, ("{seat}",), (0, 0), Cost.REPLY),
    Kind("agent-storm", storm, ("{seat}", "group"), (6, 15), Cost.REPLY),
    Kind("agent-clock-forward", clock_forward, (SKEWED,), (5, 15)),
    Kind("agent-clock-back", clock_back, (SKEWED,), (5, 15)),
    Kind("reaper-kill", kill_reaper, (REAPER,), (0, 0)),
    Kind("exporter-kill", kill_exporter, (EXPORTER,), (0, 0)),
)

"""Faults of docllm's own programs: kills, freezes, drains, storms, and a clock that jumps."""

import signal
from datetime import datetime
from pathlib import Path
from time import time

from tests.faults import skew
from tests.faults.site import AGENTS, REAPER, SKEWED, pause, quiet, wait_for
from tests.faults.strike import PATIENCE_S, Cost, Kind, Strike
from tests.integration.programs import Program

END_S = 40.0
STORM_S = 3.0
JUMP_S = (600.0, 86_400.0)


def kill(strike: Strike) -> None:
    """Kill -9 an agent that works."""
    program = strike.working()
    strike.begin(program.name, strike.seat)
    _end(strike, program, signal.SIGKILL)
    strike.bit = program.code == -signal.SIGKILL


def kill_all(strike: Strike) -> None:
    """Kill -9 every agent at once."""
    strike.working()
    programs = {
        seat: program for seat in AGENTS if (program := strike.site.crew.sitting(seat)) is not None
    }
    strike.begin("all agents", *programs)
    for seat, program in programs.items():
        strike.site.crew.leave(seat, program, signal.SIGKILL)
    strike.bit = wait_for(
        lambda: all(one.code == -signal.SIGKILL for one in programs.values()), END_S
    )
    strike.evidence["pids"] = [one.pid for one in programs.values()]


def kill_reaper(strike: Strike) -> None:
    """Kill -9 the program that reaps, relays and sweeps beside the agents."""
    crew = strike.site.crew
    if (
        not wait_for(lambda: crew.sitting(REAPER) is not None, PATIENCE_S)
        or (program := crew.sitting(REAPER)) is None
    ):
        return
    registered = wait_for(lambda: quiet(lambda: _incarnations(strike, program.pid)), PATIENCE_S)
    strike.begin(program.name)
    crew.leave(REAPER, program, signal.SIGKILL)
    strike.bit = wait_for(lambda: program.code == -signal.SIGKILL, END_S) and registered


def freeze(strike: Strike) -> None:
    """Freeze an agent (SIGSTOP) for a while, then resume it."""
    program = strike.working()
    strike.begin(program.name, strike.seat)
    program.signal(signal.SIGSTOP)
    strike.bit = wait_for(lambda: _state(program.pid) == "T", END_S)
    pause(strike.hold_s)
    program.signal(signal.SIGCONT)


def freeze_long(strike: Strike) -> None:
    """Freeze an agent until others have declared it lost, then resume it."""
    program = strike.working()
    strike.begin(program.name, strike.seat)
    program.signal(signal.SIGSTOP)
    strike.hold(lambda: any(row.lost_at is not None for row in _incarnations(strike, program.pid)))
    program.signal(signal.SIGCONT)


def drain(strike: Strike) -> None:
    """Ask an agent to leave (SIGTERM)."""
    program = strike.working()
    strike.begin(program.name, strike.seat)
    _end(strike, program, signal.SIGTERM)
    strike.bit = program.code is not None


def hurry(strike: Strike) -> None:
    """Ask an agent to leave twice at once, so that its calls end."""
    program = strike.working()
    strike.begin(program.name, strike.seat)
    strike.site.crew.leave(strike.seat, program, signal.SIGTERM)
    pause(strike.chance.uniform(0.05, 0.5))
    if program.running:
        _end(strike, program, signal.SIGTERM)
    strike.bit = program.code is not None


def storm(strike: Strike) -> None:
    """Let agents join and leave the group, one after another."""
    strike.working()
    before = strike.told(strike.site.members)
    strike.begin("the group")
    joined = 0
    for _ in range(max(2, round(strike.hold_s / STORM_S))):
        extra = strike.site.agent(strike.seat)
        strike.site.log.note("started", seat=strike.seat, program=extra.name, pid=extra.pid)
        joined += wait_for(lambda: (quiet(strike.site.members) or 0) > before, PATIENCE_S)
        extra.signal(signal.SIGTERM)
        code = extra.wait(END_S)
        strike.site.log.note(
            "ended", seat=strike.seat, program=extra.name, pid=extra.pid, code=code, by="fault"
        )
    strike.evidence["joined"] = joined
    strike.bit = joined > 0


def clock_forward(strike: Strike) -> None:
    """Set the clock of one agent forward."""
    _jump(strike, strike.chance.uniform(*JUMP_S))


def clock_back(strike: Strike) -> None:
    """Set the clock of one agent back."""
    _jump(strike, -strike.chance.uniform(*JUMP_S))


def _jump(strike: Strike, by_s: float) -> None:
    program = strike.working()
    strike.begin(program.name, SKEWED)
    strike.evidence["by_s"] = round(by_s)
    skew.jump(strike.site.folder, by_s)
    said = len(program.err)
    strike.hold(
        lambda: any(
            abs(at_s - time() - by_s) < abs(by_s) / 2 for at_s in _times(program.err[said:])
        )
    )
    skew.jump(strike.site.folder, 0)


def _times(text: str) -> list[float]:
    """Return the times at the beginnings of log lines."""
    found = []
    for line in text.splitlines():
        try:
            found.append(datetime.strptime(line[:19], "%Y-%m-%d %H:%M:%S").astimezone().timestamp())
        except ValueError:
            continue
    return found


def _end(strike: Strike, program: Program, number: signal.Signals) -> None:
    strike.site.crew.leave(strike.seat, program, number)
    wait_for(lambda: program.code is not None, END_S)
    strike.evidence["code"] = program.code


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _incarnations(strike: Strike, pid: int) -> list:
    return [
        row
        for row in strike.site.deployment.ledger.agents()
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
)

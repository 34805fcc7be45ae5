"""The programs of a run: when each ran, its incarnations, and its messages about bugs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.faults.faultlog import Event
from tests.faults.history import seconds
from tests.faults.site import REAPER, Site
from tests.integration.support.programs import Program
from tests.invariants.happened import Incarnation

NEVER_S = float("inf")
AROUND_S = 5.0  # between the start of a program and its first row
# The effects after a fault's end: lost leases are judged, and an agent that was asked to leave
# leaves.
AFTER_S = 20.0
BUGS = re.compile(r"Traceback|internal error|ended in a bug| ERROR (?!.*is parked)")


@dataclass(frozen=True, slots=True)
class Life:
    """A program from its start to its end; `by` is what ended it, `fault` or `itself`."""

    program: str
    pid: int
    seat: str
    began_s: float
    ended_s: float = NEVER_S
    code: int | None = None
    by: str = ""


def lives(events: Iterable[Event]) -> list[Life]:
    """Return the programs of the seats."""
    lives: dict[str, Life] = {}
    for event in events:
        name = event.get("program", "")
        if event["event"] == "started":
            lives[name] = Life(name, event["pid"], event["seat"], event["at_s"])
        elif event["event"] == "ended":
            lives[name] = replace(
                lives[name], ended_s=event["at_s"], code=event["code"], by=event["by"]
            )
    return list(lives.values())


def owners(site: Site, alive: Sequence[Life]) -> dict[int, Life]:
    """Return the program of each incarnation.

    Process numbers are reused, so the time decides too.
    """
    lives = {}
    for row in site.deployment.ledger.agents():
        pid, born_s = int(row.name.split(" ")[0].rpartition(":")[2]), seconds(row.started_at)
        fitting = [
            life
            for life in alive
            if life.pid == pid and life.began_s - AROUND_S <= born_s <= life.ended_s + AROUND_S
        ]
        if fitting:
            lives[row.id] = fitting[-1]
    return lives


def incarnations(site: Site, agents: Mapping[int, Life]) -> dict[int, Incarnation]:
    """Return the incarnations, each with the times at which a fault hindered it."""
    incarnations_by_id, faults = {}, site.log.of("fault")
    for row in site.deployment.ledger.agents():
        life = agents.get(row.id)
        if life is None:
            continue
        hits = [fault for fault in faults if _hits(fault, life)]
        stalls = [
            (fault["start_s"], fault["end_s"])
            for fault in hits
            if fault["kind"].startswith("agent-freeze")
        ]
        away = [
            (fault["start_s"], fault["end_s"] + AFTER_S)
            for fault in hits
            if fault["kind"].startswith("database")
        ]
        lost, stopped = (seconds(at) if at else None for at in (row.lost_at, row.stopped_at))
        incarnations_by_id[row.id] = Incarnation(
            agent_id=row.id,
            program=life.program,
            began_s=seconds(row.started_at),
            asked_s=life.ended_s - AFTER_S if life.by == "fault" else None,
            ended_s=None if life.ended_s == NEVER_S else life.ended_s,
            lost=lost,
            gone=lost or stopped,
            stalls=stalls,
            beat_stalls=[*stalls, *away],
            served=not away,
            served_at_once=not away,
        )
    return incarnations_by_id


def _hits(fault: Event, life: Life) -> bool:
    """Return whether a fault met a program, by its seat or by the ways it uses."""
    of_seat = life.seat in fault["seats"] or (life.seat == REAPER and "all" in fault["target"])
    return of_seat and fault["start_s"] <= life.ended_s and fault["end_s"] >= life.began_s


def bugs(programs: Iterable[Program]) -> list[str]:
    """Return the messages of programs that none should ever print."""
    return [
        f"{program.name}: {line[:300]}"
        for program in programs
        for line in program.err.splitlines()
        if BUGS.search(line)
    ]

"""One run: servers, agents, traffic and faults, then quiet until every task is final.

Then the evidence is judged.
"""

import random
import signal
from collections.abc import Sequence

from tests.faults import skew
from tests.faults.doors import LinkFault
from tests.faults.plan import BEGIN_S, END_S, Planned
from tests.faults.play import play
from tests.faults.run_evidence import RunEvidence, gather
from tests.faults.scrapes import Scrapes
from tests.faults.site import AGENTS, EXPORTER, Site, wait_for
from tests.faults.traffic import Traffic
from tests.faults.watch import Watch
from tests.integration.support.programs import Program

SITTING_S, LEAVING_S, ENDING_S = 60.0, 60.0, 400.0
LAST_AGENTS = 2


def run(
    site: Site, plan: Sequence[Planned], *, minutes: float, tasks: int, seed: int
) -> RunEvidence:
    """Play a plan to the end; return the evidence. The judge finds unfinished work."""
    site.start()
    over_s = max(1.0, minutes * 60 - BEGIN_S - END_S)
    # Not a secret.
    site.traffic = Traffic(
        site=site,
        tasks=tasks,
        over_s=over_s,
        chance=random.Random(f"traffic {seed}"),  # noqa: S311
    )
    topics = site.deployment.topics
    watch = Watch(
        bootstrap=site.kafka.bootstrap,
        topics=topics.names,
        keep={topics.name("dlq"), topics.name("inbox")},
    )
    watch.begin()
    site.seats.begin()
    site.scrapes = Scrapes(site=site)
    site.scrapes.begin()
    site.traffic.begin()
    play(site, plan)
    site.log.note("peace")
    heal(site)
    site.traffic.end()
    finish(site)
    series, last = site.scrapes.end()
    _leave(site, [EXPORTER])
    watch.end()
    site.deployment.bus = site.bus  # the earlier client may still look for a broker that was killed
    return gather(site, watch, series, last)


def heal(site: Site) -> None:
    """End all faults, and fill every seat."""
    for door in site.doors.values():
        site.proxy.set(door, LinkFault())
    site.llm.dial()
    skew.jump(site.folder, 0)
    wait_for(lambda: all(site.seats.program_in(seat) for seat in AGENTS), SITTING_S)


def finish(site: Site) -> None:
    """Replay dead letters once, let the agents leave, and let others finish the rest."""
    site.traffic.open_guards()
    for _ in range(2):
        site.traffic.insist("replay", "--all", "--yes")
    site.seats.end()
    _leave(site, [seat for seat in site.seats.by_name if seat != EXPORTER])
    last = [(seat, site.agent(seat, "--until-done")) for seat in AGENTS[:LAST_AGENTS]]
    for seat, program in last:
        site.log.note("started", seat=seat, program=program.name, pid=program.pid)
    for seat, program in last:
        _ended(site, seat, program, ENDING_S)


def _leave(site: Site, seats: Sequence[str]) -> None:
    """Ask the programs in these seats to end, and wait until they have."""
    leaving = [
        (seat, program) for seat in seats if (program := site.seats.program_in(seat)) is not None
    ]
    for seat, program in leaving:
        site.seats.end_program(seat, program, signal.SIGTERM)
    for seat, program in leaving:
        _ended(site, seat, program, LEAVING_S)


def _ended(site: Site, seat: str, program: Program, within_s: float) -> None:
    wait_for(lambda: not program.running, within_s)
    site.log.note(
        "ended",
        seat=seat,
        program=program.name,
        pid=program.pid,
        code=program.code,
        by="itself" if seat in AGENTS else "fault",
    )

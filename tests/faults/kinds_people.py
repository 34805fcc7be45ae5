"""Commands of people that are killed in the middle, and started again."""

import signal

from tests.faults.fault import PATIENCE_S, Fault, Kind
from tests.faults.site import quiet, wait_for
from tests.integration.support.programs import Program

BATCH, DEAD = 1500, 15
END_S = 60.0
DIALED = "400=0.5"


def load_killed(fault: Fault) -> None:
    """Kill a load that has written something, and load the same file again."""
    traffic, ledger = fault.site.traffic, fault.site.deployment.ledger
    path, names = traffic.batch(BATCH)
    batch = names[0].partition("/")[0]
    load = fault.site.tool("load", path)
    wait_for(
        lambda: not load.running or quiet(lambda: ledger.loaded(batch)), PATIENCE_S, every_s=0.02
    )
    _kill(fault, load)
    fault.evidence["written"] = quiet(lambda: ledger.loaded(batch))
    traffic.load(path, names)


def cancel_killed(fault: Fault) -> None:
    """Kill a cancel that has ended some tasks, and start it again."""
    traffic, ledger = fault.site.traffic, fault.site.deployment.ledger
    path, names = traffic.batch(BATCH)
    batch = names[0].partition("/")[0]
    traffic.load(path, names)
    before = (quiet(ledger.counts) or {}).get("cancelled", 0)
    cancel = fault.site.tool("cancel", "--batch", batch)
    wait_for(
        lambda: not cancel.running or (quiet(ledger.counts) or {}).get("cancelled", 0) > before,
        PATIENCE_S,
        every_s=0.02,
    )
    _kill(fault, cancel)
    traffic.insist("cancel", "--batch", batch)


def replay_killed(fault: Fault) -> None:
    """Let some tasks be refused, kill their replay after it began, and resume it."""
    site, ledger = fault.site, fault.site.deployment.ledger
    fault.evidence["dialed"] = DIALED
    fault.begin("llm")
    site.llm.dial(DIALED)
    try:
        wait_for(lambda: (quiet(ledger.counts) or {}).get("dead", 0) >= DEAD, PATIENCE_S)
    finally:
        site.llm.dial()
    dead = (quiet(ledger.counts) or {}).get("dead", 0)
    replay = site.tool("replay", "--all", "--yes", "--rate", "5/s")
    wait_for(
        lambda: not replay.running or 0 < (quiet(ledger.counts) or {}).get("dead", dead) < dead,
        PATIENCE_S,
        every_s=0.05,
    )
    _kill(fault, replay)
    fault.evidence["dead"] = [dead, (quiet(ledger.counts) or {}).get("dead")]
    site.traffic.insist("replay", "--resume")


def _kill(fault: Fault, program: Program) -> None:
    fault.target = program.name
    program.signal(signal.SIGKILL)
    fault.evidence["code"] = program.wait(END_S)
    fault.bit = fault.evidence["code"] == -signal.SIGKILL


KINDS = (
    Kind("load-kill", load_killed, ("load",), (0, 0)),
    Kind("cancel-kill", cancel_killed, ("load",), (0, 0)),
    Kind("replay-kill", replay_killed, ("llm", "replay"), (0, 0)),
)

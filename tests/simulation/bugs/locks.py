"""Bugs of the locks that handlers take."""

from typing import Any

from docllm.agent.handlers.held_lock import ContextLocks
from docllm.agent.ledger.leases import lock_rows
from tests.simulation.bugs.bug import Bug, replaced
from tests.simulation.bugs.stages import LOCKED, LOCKED_ZOMBIES


def _nobody_holds(_connection: Any, held: Any) -> bool:
    return bool(held.owner == 0)


BUGS = {
    "a lock goes to who asks though it is held": Bug(
        "P7", replaced(lock_rows, "_alive", _nobody_holds), LOCKED
    ),
    "a lost agent goes on with its lock": Bug(
        "P7", replaced(ContextLocks, "check", lambda _self: None), LOCKED_ZOMBIES
    ),
}

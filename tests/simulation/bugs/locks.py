"""Bugs of the locks that handlers take."""

from typing import Any

from docllm.agent.handlers.attempt_context import AttemptContext
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
        "P7", replaced(AttemptContext, "check_lock", lambda _self: None), LOCKED_ZOMBIES
    ),
}

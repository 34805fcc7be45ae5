"""Results outside the ledger: each pointer has its object, and no object was overwritten."""

from tests.invariants.evidence import Evidence


def pointing_nowhere(run: Evidence) -> list[str]:
    """Each settled pointer leads to the object that was written for it."""
    return [f"the output of task {task_id} is {what}" for task_id, what in run.lost_outputs]


def overwritten(run: Evidence) -> list[str]:
    """Nothing that was written is written over."""
    return [f"{uri} was overwritten" for uri in run.overwritten]

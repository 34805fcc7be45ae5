"""Compares the sums that are exported with the history of counts, in the middle of a run.

The history only grows. So sums that equal it at each moment never fall.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from docllm.producer.ledger.status import group_sums
from docllm.schemas.task.failures import TallyOutcome
from docllm.schemas.task.states import FINAL, Status

_HISTORY = """
SELECT state, outcome, SUM(MAX(delta, 0)), SUM(tokens_in), SUM(tokens_out), SUM(cost_micro)
FROM sim_count WHERE batch_id IN (SELECT id FROM batch WHERE group_name=?) GROUP BY state, outcome
"""


def misread(connection: Connection, rows: Callable[..., list[Any]], group: str) -> list[str]:
    """Return a line for each sum of a group that is not that of the history."""
    sums = group_sums.read_sums(connection, group, lambda route: route)
    shown = Counter({"loaded": sums.loaded, "replayed": sums.replayed})
    shown.update({status.name: sums.ended[status] for status in FINAL})
    shown["deaths by class"] = sums.dead.total()
    shown["tokens"] = sums.tokens.total() - sum(
        count for (_, direction), count in sums.tokens.items() if direction == "cached"
    )
    shown["cost"] = sums.cost_micro.total()
    true: Counter[str] = Counter()
    for state, outcome, entered, tokens_in, tokens_out, cost_micro in rows(_HISTORY, group):
        if outcome in {TallyOutcome.LOADED, TallyOutcome.REPLAYED}:
            true[outcome] += entered
        if state in FINAL:
            true[Status(state).name] += entered
        if state == Status.DEAD:
            true["deaths by class"] += entered
        true["tokens"] += tokens_in + tokens_out
        true["cost"] += cost_micro
    return [
        f"{name}: {shown[name]} exported, {true[name]} happened"
        for name in sorted({*shown, *true})
        if shown[name] != true[name]
    ]

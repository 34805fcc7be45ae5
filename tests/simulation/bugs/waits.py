"""Bugs of tasks that wait in the ledger."""

from contextlib import AbstractContextManager, ExitStack
from typing import Any

from docllm.agent.ledger.claims import waking
from docllm.agent.ledger.claims.waking import CalledUp
from docllm.producer.ledger import joins, outbox, waiting_rows
from docllm.schemas.ledger.tables import waiting
from tests.simulation.bugs.bug import Bug, patched, replaced
from tests.simulation.bugs.stages import FAMILIES, POLLS, REPLAYED_FAMILIES, TIMED


def _told_too_early() -> AbstractContextManager[Any]:
    early = waking._WAITS.order_by(waiting.c.due_at)
    stack = ExitStack()
    stack.enter_context(patched(waking, "_DUE", early))
    stack.enter_context(patched(waking, "_ANY_DUE", early.limit(1)))
    return stack


def _called_up_without_orders() -> AbstractContextManager[Any]:
    order = waiting_rows.call_up

    def no_orders(connection: Any, group: str, rows: Any) -> Any:
        placed = order(connection, group, rows)
        for one in placed:
            outbox.shrink(connection, one, ())
        return []

    return patched(waiting_rows, "call_up", no_orders)


def _nobody_asks() -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.enter_context(patched(joins, "after_end", lambda *_: []))
    stack.enter_context(patched(joins, "ended", lambda *_: []))
    return stack


BUGS = {
    "a join runs when one of its siblings has ended": Bug(
        "P6", replaced(joins, "_has_ended", lambda _row: True), FAMILIES
    ),
    "a replayed join does not wait again": Bug(
        "P6", replaced(joins, "wait_again", lambda *_: set()), REPLAYED_FAMILIES
    ),
    "nobody calls a join up": Bug("P1", _nobody_asks, FAMILIES),
    "agents never ask again for joins that wait": Bug(
        "P1", replaced(joins, "ended", lambda *_: []), REPLAYED_FAMILIES
    ),
    "a task is called up before its time": Bug("P6", _told_too_early, TIMED),
    "nobody calls up the tasks whose time has come": Bug(
        "P1",
        replaced(waking, "call_up_due", lambda _connection, _group: CalledUp([], 0)),
        TIMED,
    ),
    "a row goes without an order": Bug("P1", _called_up_without_orders, TIMED),
    "a move leaves no row": Bug("P1", replaced(waiting_rows, "put", lambda *_: None), POLLS),
    "what a handler keeps is forgotten": Bug(
        "P1", replaced(waiting_rows, "keep_states", lambda *_: None), POLLS
    ),
}

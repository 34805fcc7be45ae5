"""Bugs of judge, breaker and guard: tasks pay for a provider's general failures."""

from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from sqlalchemy import bindparam, update

from docllm.agent.execution import slots
from docllm.agent.execution.admission import Admission
from docllm.agent.handlers import runner
from docllm.agent.judge import guard_rule
from docllm.agent.judge.classes import CLASSES, Action
from docllm.agent.ledger.claims import claiming
from docllm.agent.ledger.guards import decisions
from docllm.agent.ledger.returned_letters import ReturnedLetters
from docllm.agent.ledger.settlements import state_changes, uncounted_ends
from docllm.agent.routes import circuit, route
from docllm.schemas.ledger.sql import NEVER_TIME
from docllm.schemas.ledger.tables import task
from docllm.schemas.task.failures import ErrorClass
from tests.simulation.bugs.bug import Bug, patched, replaced
from tests.simulation.bugs.stages import (
    ALL_FAIL,
    ALL_PANIC,
    ALL_REFUSED,
    CANCELLED,
    OUTAGES,
    RATES,
    REDRIVES,
    UNKNOWN_TYPE,
    UNPAID,
)


def _counted(name: ErrorClass) -> AbstractContextManager[Any]:
    return patch.dict(CLASSES, {name: replace(CLASSES[name], action=Action.RETRY)})


def _outage_counted() -> AbstractContextManager[Any]:
    ended = route.Route.ended

    def plain(self: route.Route, permit: Any, outcome: Any, now_s: float) -> Any:
        ended(self, permit, outcome, now_s)
        return outcome

    return patched(route.Route, "ended", plain)


def _cancel_unheard() -> AbstractContextManager[Any]:
    row = claiming._row
    return patched(claiming, "_row", lambda *columns: replace(row(*columns), cancelled=False))


def _any_type(self: Admission, delivery: Any) -> Any:
    return self.guards.guard_of(delivery.row, delivery.route)


def _raised_again(_self: Any, error: BaseException, _context: Any, *, timed_out: bool) -> Any:
    raise error


def _panics_free() -> AbstractContextManager[Any]:
    """A panic is taken for a bug of ours, and bugs of ours never count."""
    stack = ExitStack()
    stack.enter_context(patched(runner.Handlers, "_raised", _raised_again))
    stack.enter_context(patched(uncounted_ends, "FREE_ENDS", 1 << 30))
    stack.enter_context(patched(slots, "INTERNAL_S", 1.0))
    return stack


def _raised_for_nothing(self: guard_rule.KeyHistory, error: bytes) -> bool:
    _let_die_of_bad_request(self, error)
    return True


_let_die_of_bad_request = guard_rule.KeyHistory.let_die_of_bad_request
_DIE = update(task).where(task.c.id.in_(bindparam("ids", expanding=True)))
_DIE = _DIE.values(
    status=4, owner=0, lease_losses=0, due_at=NEVER_TIME, route=bindparam("by_route")
)


async def _all_foreign(_self: Any, records: Any) -> Any:
    return list(records)


BUGS = {
    "a rate limit counts": Bug("P5", lambda: _counted(ErrorClass.RATE), RATES),
    "an unpaid bill counts": Bug("P5", lambda: _counted(ErrorClass.MONEY), UNPAID),
    "an outage counts": Bug("P5", _outage_counted, {**OUTAGES, "slots": 1}),
    "the breaker never stops a route": Bug(
        "P5", replaced(circuit.OutcomeWindow, "is_bad", property(lambda _self: False)), OUTAGES
    ),
    "deaths are not held back": Bug(
        "P5",
        replaced(
            decisions,
            "_decide",
            lambda _case, attempt, _longest, _tried: attempt.outcome,
        ),
        ALL_FAIL,
    ),
    "refusals are not held back": Bug(
        "P5",
        replaced(guard_rule.KeyHistory, "let_die_of_bad_request", _raised_for_nothing),
        ALL_REFUSED,
    ),
    "a death does not count": Bug("P5", replaced(state_changes, "_DIE", _DIE)),
    "a letter that comes back gets a second letter": Bug(
        "P8", replaced(ReturnedLetters, "without_letters", _all_foreign), REDRIVES
    ),
    "a panic never counts": Bug("P4", _panics_free, ALL_PANIC),
    "a cancelled task is called": Bug("P4", _cancel_unheard, CANCELLED),
    "an unknown type runs as a completion": Bug(
        "P4", replaced(Admission, "_reason_to_wait", _any_type), UNKNOWN_TYPE
    ),
}

"""The classes of failure, and what each one means for the task and for its route.

Each class has one row in the table. Two exceptions: a task that alone meets AUTH on a working route
is tried again as BAD_REQUEST, counted, which says nothing about the route (`judgement.py`,
`evidence.py`), and a failure on a route that has stopped meanwhile is not counted (`Route.ended`).
What an error of a handler means is decided by the rules of the task's type.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import ErrorClass


class Action(Enum):
    """What happens to a task after a failure of a class."""

    SNOOZE = "snooze"  # try again, uncounted and without limit: the task is not at fault
    RETRY = "retry"  # try again from a tier, counted: the same input may well succeed
    GIVE_UP = "give up"  # the same input would fail again


class Effect(Enum):
    """The evidence that a failure gives about the route that was called."""

    OUTAGE = "outage"  # the provider does not work: a failure for the breaker
    REFUSAL = "refusal"  # the provider works, but takes no calls for now
    LOCKED = "locked"  # the provider takes no calls until a person has acted
    UP = "up"  # the provider works: its answer is about this task alone
    NONE = "none"  # nothing: the failure is not that of a call


@dataclass(frozen=True, slots=True)
class ClassRule:
    """The consequences of a class for its task and for its route."""

    action: Action
    route: Effect


CLASSES = {
    ErrorClass.RATE: ClassRule(Action.SNOOZE, Effect.REFUSAL),
    ErrorClass.RAMP: ClassRule(Action.SNOOZE, Effect.REFUSAL),
    ErrorClass.CAPACITY: ClassRule(Action.SNOOZE, Effect.REFUSAL),
    ErrorClass.MONEY: ClassRule(Action.SNOOZE, Effect.LOCKED),
    ErrorClass.AUTH: ClassRule(Action.SNOOZE, Effect.LOCKED),
    ErrorClass.SERVER: ClassRule(Action.RETRY, Effect.OUTAGE),
    ErrorClass.NETWORK: ClassRule(Action.RETRY, Effect.OUTAGE),
    ErrorClass.AMBIGUOUS: ClassRule(Action.RETRY, Effect.OUTAGE),
    ErrorClass.BAD_OUTPUT: ClassRule(Action.RETRY, Effect.UP),
    ErrorClass.HANDLER: ClassRule(Action.RETRY, Effect.NONE),
    ErrorClass.DOCUMENT_UNREADABLE: ClassRule(Action.RETRY, Effect.NONE),
    ErrorClass.HANDLER_GAVE_UP: ClassRule(Action.GIVE_UP, Effect.NONE),
    ErrorClass.TOO_LONG: ClassRule(Action.GIVE_UP, Effect.UP),
    ErrorClass.INPUT_CUT: ClassRule(Action.GIVE_UP, Effect.UP),
    ErrorClass.FILTERED: ClassRule(Action.GIVE_UP, Effect.UP),
    ErrorClass.BAD_REQUEST: ClassRule(Action.GIVE_UP, Effect.UP),
    ErrorClass.REPLY_TOO_LARGE: ClassRule(Action.GIVE_UP, Effect.UP),
    ErrorClass.DOCUMENT_REFUSED: ClassRule(Action.GIVE_UP, Effect.NONE),
    ErrorClass.DOCUMENT_CHANGED: ClassRule(Action.GIVE_UP, Effect.NONE),
    ErrorClass.OUTPUT_UNWRITABLE: ClassRule(Action.SNOOZE, Effect.NONE),
    ErrorClass.OUTPUT_REFUSED: ClassRule(Action.GIVE_UP, Effect.NONE),
}


def effect_of(error_class: ErrorClass) -> Effect:
    """Return what a failure of this class says about its route.

    A class that is not in the table, such as `EXPIRED` or `INTERNAL`, says nothing.
    """
    rule = CLASSES.get(error_class)
    return Effect.NONE if rule is None else rule.route


def action_of(names: Sequence[Sequence[str]], rules: TypeConfig) -> Action:
    """Return whether the task of an error with these names is tried again or given up.

    A rule names a class of errors by its bare name or by its dotted name, as a traceback shows it.
    It applies to subclasses too; the nearest class decides. An error without a rule is tried again,
    unless the type lists the errors to try again.
    """
    for of_class in names:
        if not set(of_class).isdisjoint(rules.give_up):
            return Action.GIVE_UP
        if not set(of_class).isdisjoint(rules.retry):
            return Action.RETRY
    return Action.GIVE_UP if rules.retry else Action.RETRY


def names_of(error: BaseException) -> list[list[str]]:
    """Return the bare and the dotted name of an error's class, then of each class above it."""
    return [
        [kind.__name__, f"{kind.__module__}.{kind.__qualname__}"] for kind in type(error).__mro__
    ]

"""The classes of failure, and what each one means for the task and for its route.

Each class has one row in the table. Nothing else decides.
"""

from dataclasses import dataclass
from enum import Enum


class Action(Enum):
    """What happens to a task whose attempt failed with a class."""

    SNOOZE = "snooze"  # try again, uncounted and without limit: the task is not at fault
    RETRY = "retry"  # try again from a tier, counted: the same input may well succeed
    GIVE_UP = "give up"  # the same input would fail again


class Effect(Enum):
    """What a failure says about the route that was called."""

    OUTAGE = "outage"  # the provider does not work: a failure for the breaker
    REFUSAL = "refusal"  # the provider works, but takes no calls for now
    LOCKED = "locked"  # the provider takes no calls until a person has acted
    UP = "up"  # the provider works: its answer is about this task alone
    NONE = "none"  # nothing: the failure is not that of a call


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """A row of the table."""

    name: str
    action: Action
    route: Effect
    meaning: str


# fmt: off
CLASSES = {
    row.name: row
    for row in (
        ErrorClass("RATE",                Action.SNOOZE,  Effect.REFUSAL, "the provider's rate limit"),
        ErrorClass("RAMP",                Action.SNOOZE,  Effect.REFUSAL, "traffic grew too fast, though within the limits"),
        ErrorClass("CAPACITY",            Action.SNOOZE,  Effect.REFUSAL, "the provider has no room at the moment"),
        ErrorClass("MONEY",               Action.SNOOZE,  Effect.LOCKED,  "no credit, or a spend limit is reached: a person must act"),
        ErrorClass("AUTH",                Action.SNOOZE,  Effect.LOCKED,  "key, model or address is not accepted: a person must act"),
        ErrorClass("SERVER",              Action.RETRY,   Effect.OUTAGE,  "the provider failed, or answered what is no completion"),
        ErrorClass("NETWORK",             Action.RETRY,   Effect.OUTAGE,  "no connection; nothing was sent, nothing billed"),
        ErrorClass("AMBIGUOUS",           Action.RETRY,   Effect.OUTAGE,  "sent, but no whole answer: it may have been billed"),
        ErrorClass("BAD_OUTPUT",          Action.RETRY,   Effect.UP,      "an answer that cannot be used"),
        ErrorClass("HANDLER",             Action.RETRY,   Effect.NONE,    "the task's handler raised an error of its own"),
        ErrorClass("DOCUMENT_UNREADABLE", Action.RETRY,   Effect.NONE,    "the document cannot be opened or read at the moment"),
        ErrorClass("HANDLER_GAVE_UP",     Action.GIVE_UP, Effect.NONE,    "the task's handler, or its type's rules, gave it up"),
        ErrorClass("TOO_LONG",            Action.GIVE_UP, Effect.UP,      "the document, or the answer, exceeds the model's limit"),
        ErrorClass("FILTERED",            Action.GIVE_UP, Effect.UP,      "refused by the provider's content filter, or by the model"),
        ErrorClass("BAD_REQUEST",         Action.GIVE_UP, Effect.UP,      "the provider cannot take this request"),
        ErrorClass("REPLY_TOO_LARGE",     Action.GIVE_UP, Effect.UP,      "the reply exceeds what the ledger stores"),
        ErrorClass("DOCUMENT_REFUSED",    Action.GIVE_UP, Effect.NONE,    "the document may not be read, is no text, or too long"),
        ErrorClass("DOCUMENT_CHANGED",    Action.GIVE_UP, Effect.NONE,    "the document is not the one that was loaded"),
    )
}
# fmt: on
# A task that meets AUTH while its route answers others is tried again and counted: the cause may be
# a firewall, or a model that only this task names.
REFUSED = "AUTH"


def effect_of(error_class: str) -> Effect:
    """Return what a failure of this class says about its route.

    A class that is not in the table, such as `EXPIRED` or `INTERNAL`, says nothing.
    """
    row = CLASSES.get(error_class)
    return Effect.NONE if row is None else row.route

"""The classes of failure, and what each one means for the task and for its route. One row per class; nothing else decides."""

from dataclasses import dataclass
from enum import Enum


class Action(Enum):
    """What becomes of a task whose attempt ended so."""

    SNOOZE = "snooze"  # come back, uncounted, however often: the fault is not the task's
    RETRY = "retry"  # come back from a tier, and count: the same input may well do better
    GIVE_UP = "give up"  # the same input fails again


class Effect(Enum):
    """What the failure tells of the route that was called."""

    OUTAGE = "outage"  # the provider does not work: a failure for the breaker
    REFUSAL = "refusal"  # it works, and takes no calls for now
    LOCKED = "locked"  # it takes none until a person has acted
    UP = "up"  # it answered, about this task alone: proof that it works
    NONE = "none"  # nothing: the failure is not a call's


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
REFUSED = "AUTH"  # tried again, and counted, where others of the route are answered: a firewall, or a model that this task alone asks for


def effect_of(error_class: str) -> Effect:
    """Return what a failure of this class tells of its route; nothing where the judge did not make it (`EXPIRED`, `INTERNAL`)."""
    row = CLASSES.get(error_class)
    return Effect.NONE if row is None else row.route

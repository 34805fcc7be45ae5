"""The classes of failure, and what each one means for the task and for its route. One row per class; nothing else decides."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal


class Action(Enum):
    """What becomes of a task whose attempt ended so."""

    SNOOZE = "snooze"  # come back, uncounted, however often: the fault is not the task's
    STRIKE = "strike"  # come back a few times, then give up: the same input may well do better, and costs money each time
    GIVE_UP = "give up"  # the same input fails again


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """A row of the table. `scope`: what the failure is about, the task alone or its whole route."""

    name: str
    action: Action
    scope: Literal["task", "route"]
    meaning: str


# The most strikes a task may have: with 2 % of bad answers one task in six million dies of them.
STRIKES = 3

# fmt: off
CLASSES = {
    row.name: row
    for row in (
        ErrorClass("RATE",                Action.SNOOZE,  "route", "the provider's rate limit"),
        ErrorClass("RAMP",                Action.SNOOZE,  "route", "traffic grew too fast, though within the limits"),
        ErrorClass("CAPACITY",            Action.SNOOZE,  "route", "the provider has no room at the moment"),
        ErrorClass("MONEY",               Action.SNOOZE,  "route", "no credit, or a spend limit is reached: a person must act"),
        ErrorClass("AUTH",                Action.SNOOZE,  "route", "key, model or address is not accepted: a person must act"),
        ErrorClass("SERVER",              Action.SNOOZE,  "route", "the provider failed, or answered what is no completion"),
        ErrorClass("NETWORK",             Action.SNOOZE,  "route", "no connection; nothing was sent, nothing billed"),
        ErrorClass("AMBIGUOUS",           Action.SNOOZE,  "task",  "sent, but no whole answer: it may have been billed"),
        ErrorClass("BAD_OUTPUT",          Action.STRIKE,  "task",  "an answer that cannot be used"),
        ErrorClass("HANDLER",             Action.STRIKE,  "task",  "the task's handler raised an error of its own"),
        ErrorClass("DOCUMENT_UNREADABLE", Action.STRIKE,  "task",  "the document cannot be opened or read at the moment"),
        ErrorClass("TOO_LONG",            Action.GIVE_UP, "task",  "the document, or the answer, exceeds the model's limit"),
        ErrorClass("FILTERED",            Action.GIVE_UP, "task",  "refused by the provider's content filter, or by the model"),
        ErrorClass("BAD_REQUEST",         Action.GIVE_UP, "task",  "the provider cannot take this request"),
        ErrorClass("REPLY_TOO_LARGE",     Action.GIVE_UP, "task",  "the reply exceeds what the ledger stores"),
        ErrorClass("DOCUMENT_REFUSED",    Action.GIVE_UP, "task",  "the document may not be read, or is no text"),
        ErrorClass("DOCUMENT_CHANGED",    Action.GIVE_UP, "task",  "the document is not the one that was loaded"),
    )
}
# fmt: on

ROUTE_WIDE = frozenset(row.name for row in CLASSES.values() if row.scope == "route")

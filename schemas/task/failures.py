"""Why attempts fail and how tasks end, in the names that the ledger stores and people read.

A row may be of a newer version. So code that reads a stored name compares it with these values and
never converts it to an enum member.
"""

from enum import StrEnum
from typing import Self


class ErrorClass(StrEnum):
    """The class of a failure, and its meaning for a person.

    `agent/judge/classes.py` says what becomes of a task that failed with a class of the first part.
    """

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Self:
        """Return a member that is equal to its stored name."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.meaning = meaning
        return member

    # Of calls, documents and handlers.
    RATE = "RATE", "the provider's rate limit"
    RAMP = "RAMP", "traffic grew too fast, though within the limits"
    CAPACITY = "CAPACITY", "the provider has no room at the moment"
    MONEY = "MONEY", "no credit, or a spend limit is reached: a person must act"
    AUTH = "AUTH", "key, model or address is not accepted: a person must act"
    SERVER = "SERVER", "the provider failed, or its answer is not a completion"
    NETWORK = "NETWORK", "no connection; nothing was sent, nothing billed"
    AMBIGUOUS = "AMBIGUOUS", "sent, but no complete answer came: it may have been billed"
    BAD_OUTPUT = "BAD_OUTPUT", "an answer that cannot be used"
    HANDLER = "HANDLER", "the task's handler raised an error of its own"
    DOCUMENT_UNREADABLE = (
        "DOCUMENT_UNREADABLE",
        "the document cannot be opened or read at the moment",
    )
    HANDLER_GAVE_UP = "HANDLER_GAVE_UP", "the task's handler, or its type's rules, gave it up"
    TOO_LONG = "TOO_LONG", "the document, or the answer, exceeds the model's limit"
    INPUT_CUT = "INPUT_CUT", "the server has cut the prompt, and the type's `whole_input` is true"
    FILTERED = "FILTERED", "refused by the provider's content filter, or by the model"
    BAD_REQUEST = "BAD_REQUEST", "the provider cannot take this request"
    REPLY_TOO_LARGE = "REPLY_TOO_LARGE", "the reply exceeds what the ledger stores"
    DOCUMENT_REFUSED = (
        "DOCUMENT_REFUSED",
        "the document may not be read, is blank or not text, or is too long",
    )
    DOCUMENT_CHANGED = "DOCUMENT_CHANGED", "the document is not the one that was loaded"
    OUTPUT_UNWRITABLE = (
        "OUTPUT_UNWRITABLE",
        "the result cannot be written to its output at the moment; the answer is kept",
    )
    OUTPUT_REFUSED = "OUTPUT_REFUSED", "the result may not be written to its output"

    # Of the ledger and the agent.
    NO_INPUT = "NO_INPUT", "the ledger has no input for the task, because somebody deleted it"
    NO_PROMPT = "NO_PROMPT", "the task has no prompt, and its type has no handler"
    EXPIRED = "EXPIRED", "the task's deadline passed before an attempt"
    CHILD_DEAD = (
        "CHILD_DEAD",
        "no attempt: a task that it waited for is dead or cancelled, and `on_dead_child` is `die`",
    )
    SETTLE = (
        "SETTLE",
        "the ledger refuses the outcome, even when it is written alone; the answer is not kept",
    )
    INTERNAL = "INTERNAL", "a bug of docllm ended the attempt; the agent's log has the traceback"
    RELEASED = (
        "RELEASED",
        "the task was given back after a call, because its agent drained or lost its lease",
    )
    CANCELLED = "CANCELLED", "the batch was cancelled during the attempt"
    GUARD = "GUARD", "no attempt: the guard of its batch, type and route is raised"
    ROUTE = "ROUTE", "no attempt: its route is closed"
    UNKNOWN_TYPE = "UNKNOWN_TYPE", "no attempt: its agent's settings have no section for its type"
    HOOK = "HOOK", "no attempt: the cost of a hook that ran after one"
    SCHEDULE = "SCHEDULE", "no attempt: the hours of its type have not begun"
    COME_BACK = (
        "COME_BACK",
        "no attempt: its handler asked to come back later, or waited too long for a lock or limit",
    )
    AGENT_LOST = "AGENT_LOST", "no counted attempt: its agent was lost, or its claim was overdue"
    WORKER_LOST = (
        "WORKER_LOST",
        ('agents were lost while they worked on it, or one, if its type has `on_loss = "dead"`'),
    )
    FOLLOW_CLASH = (
        "FOLLOW_CLASH",
        "it ordered a follow-up whose id the batch has already with other content",
    )
    UNDECODABLE = "UNDECODABLE", "the record is not a task line, or no publication of docllm"
    REJECTED = "REJECTED", "the record names no task of this ledger and group"
    UNREADABLE = (
        "UNREADABLE",
        "only in exports: the stored task is damaged, or its output is missing or altered",
    )


# Classes of history rows that do not stand for an attempt, or not for one that anybody counts.
UNTRIED = frozenset(
    {
        ErrorClass.EXPIRED,
        ErrorClass.CHILD_DEAD,
        ErrorClass.GUARD,
        ErrorClass.ROUTE,
        ErrorClass.UNKNOWN_TYPE,
        ErrorClass.HOOK,
        ErrorClass.SCHEDULE,
        ErrorClass.COME_BACK,
        ErrorClass.AGENT_LOST,
    }
)


class Disposition(StrEnum):
    """Why a task was given up or a record quarantined; a record has one of the last two."""

    PERMANENT = "permanent"  # another attempt would fail alike
    EXHAUSTED = "exhausted"  # its attempts are used up
    EXPIRED = "expired"  # its deadline passed
    WORKER_LOST = "worker_lost"  # agents were lost over it
    REJECTED = "rejected"
    UNDECODABLE = "undecodable"


def may_have_finished(why: str) -> str:
    """Return the text of a WORKER_LOST that forbids another run; `why` it was cut off.

    Such texts have one fingerprint, since a quote counts for nothing in it.
    """
    quoted = why.replace('"', "'")
    return f'it may have finished, so it does not run again (on_loss = "dead"): "{quoted}"'


class AttemptOutcome(StrEnum):
    """How an attempt ended, in the column `outcome` of `task_attempt`; a success has a result."""

    RETRY = "retry"
    SNOOZE = "snooze"
    MOVED = "moved"
    DEAD = "dead"
    CANCELLED = "cancelled"
    RELEASED = "released"
    HOOK = "hook"  # no attempt: what a hook had paid
    LOST = "lost"  # its agent was lost, or its claim was overdue; a late settle deletes the row


class TallyOutcome(StrEnum):
    """Why tasks were counted, in the column `outcome` of `tally`; of a failure it is the class."""

    LOADED = "loaded"
    REPLAYED = "replayed"
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    PROBE = "probe"  # no task: our own prompt was answered
    HOOK = "hook"  # no task: what a hook had paid
    CALL = "call"  # no task: calls of attempts beyond the one that is counted as their end
    NOTE = "note"  # no task: notes beside results, by kind in the column `disposition`


FOLLOW_UP = "follow-up"  # in the column `disposition` of `tally`: tasks that other tasks ordered

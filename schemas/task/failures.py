"""Why attempts fail and how tasks end, in the names that the ledger stores and people read.

A row may be of a newer version. So code that reads a stored name compares it with these values and
never converts it to an enum member.
"""

from enum import StrEnum


class ErrorClass(StrEnum):
    """The class of a failure; `docs/reference/failures.md` says what each means for a person.

    `agent/judge/classes.py` says what becomes of a task that failed with a class of the first part.
    """

    # Of calls, documents and handlers.
    RATE = "RATE"
    RAMP = "RAMP"  # traffic grew too fast, though within the limits
    CAPACITY = "CAPACITY"
    MONEY = "MONEY"  # a person must act
    AUTH = "AUTH"  # key, model or address: a person must act
    SERVER = "SERVER"
    NETWORK = "NETWORK"  # nothing was sent, nothing billed
    AMBIGUOUS = "AMBIGUOUS"  # sent, and perhaps billed, but no complete answer came
    BAD_OUTPUT = "BAD_OUTPUT"
    HANDLER = "HANDLER"
    DOCUMENT_UNREADABLE = "DOCUMENT_UNREADABLE"
    HANDLER_GAVE_UP = "HANDLER_GAVE_UP"
    TOO_LONG = "TOO_LONG"
    INPUT_CUT = "INPUT_CUT"  # the server has cut the prompt
    FILTERED = "FILTERED"
    BAD_REQUEST = "BAD_REQUEST"
    REPLY_TOO_LARGE = "REPLY_TOO_LARGE"
    DOCUMENT_REFUSED = "DOCUMENT_REFUSED"
    DOCUMENT_CHANGED = "DOCUMENT_CHANGED"
    OUTPUT_UNWRITABLE = "OUTPUT_UNWRITABLE"
    OUTPUT_REFUSED = "OUTPUT_REFUSED"

    # Of the ledger and the agent.
    NO_INPUT = "NO_INPUT"
    NO_PROMPT = "NO_PROMPT"
    EXPIRED = "EXPIRED"
    CHILD_DEAD = "CHILD_DEAD"
    SETTLE = "SETTLE"  # the ledger refuses the outcome, even when it is written alone
    INTERNAL = "INTERNAL"
    RELEASED = "RELEASED"  # given back after a call: its agent drained or lost its lease
    CANCELLED = "CANCELLED"
    GUARD = "GUARD"
    ROUTE = "ROUTE"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    HOOK = "HOOK"  # no attempt: the cost of a hook
    SCHEDULE = "SCHEDULE"
    COME_BACK = "COME_BACK"
    AGENT_LOST = "AGENT_LOST"
    WORKER_LOST = "WORKER_LOST"  # agents were lost while they worked on it
    FOLLOW_CLASH = "FOLLOW_CLASH"
    UNDECODABLE = "UNDECODABLE"
    REJECTED = "REJECTED"
    UNREADABLE = "UNREADABLE"  # only in exports


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

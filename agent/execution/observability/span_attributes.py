"""What the spans of attempts and calls say: task, outcome, cost and error. Pure."""

from docllm.agent.handlers.calls.permits import CallEnd
from docllm.agent.ports import CallFailed, Settlement, Verdict
from docllm.agent.ports.outcome import Dead, Moved, Outcome, Retry, Snooze, Spent, Succeeded
from docllm.producer.tracing import names
from docllm.producer.tracing.spans import Attribute, inert

CANCELLED = "cancelled"
# An outcome that the ledger took as a failure, or not at all.
FAILED = {Verdict.RETRIED, Verdict.DIED, Verdict.SUPERSEDED, Verdict.GIVEN_UP}


def error_of(outcome: Outcome, verdict: Verdict) -> str:
    """Return the class of the attempt's error; empty if it has none."""
    if verdict in {Verdict.SUPERSEDED, Verdict.GIVEN_UP}:
        return verdict.name
    if isinstance(outcome, Retry | Dead | Snooze | Moved):
        return outcome.failure.error_class
    return verdict.name if verdict in FAILED else ""


def error_of_call(end: CallEnd) -> str:
    """Return the class of a call's error; empty if it has none."""
    if end.outcome is None:
        return CANCELLED if end.reply is None else type(end.reply).__name__
    if isinstance(end.reply, CallFailed):
        return end.reply.error_class
    return "" if isinstance(end.outcome, Succeeded) else end.outcome.failure.error_class


def of_task(settlement: Settlement) -> dict[str, Attribute]:
    """Return the attributes of an attempt that name its task."""
    row = settlement.row
    return {
        names.TASK_ID: row.task_id,
        names.TASK: inert(row.key_text),
        names.BATCH: inert(row.batch),
        names.TYPE: inert(row.type),
        names.TENANT: inert(row.tenant),
        names.ROUTE: inert(settlement.route),
        names.FENCE: row.fence,
        names.ATTEMPT: row.counted_before,
    }


def of_outcome(outcome: Outcome, verdict: Verdict) -> dict[str, Attribute]:
    """Return the attributes of an attempt that say how it ended."""
    return {
        names.OUTCOME: type(outcome).__name__.lower(),
        names.VERDICT: verdict.value,
    }


def of_cost(spent: Spent) -> dict[str, Attribute]:
    """Return the attributes that say what calls have used; amounts of 0 are left out."""
    amounts = {
        names.TOKENS_IN: spent.tokens_in,
        names.TOKENS_OUT: spent.tokens_out,
        names.TOKENS_CACHED: spent.tokens_cached,
        names.COST: spent.cost_micro,
    }
    return {name: amount for name, amount in amounts.items() if amount}

"""Explains why nothing moves, from the agent's own state and the ledger.

Pure.
"""

from collections.abc import Iterator

from docllm.producer.ledger.status.progress import Waiting
from docllm.producer.ledger.store import half_loaded_message
from docllm.producer.text.agent_sentences import call_text, sentences
from docllm.schemas.agent_report import AgentReport
from docllm.schemas.text.wording import number_of

NAMED_AGENTS = 3


def why_still(
    report: AgentReport | None, waiting: Waiting, *, group: str, own: int
) -> tuple[str, bool]:
    """Return why nothing moves, and whether there is another cause than slow calls or a limit.

    `own` is the id of the agent that asks.
    """
    told = sentences(report, group) if report else []
    guards = [
        f"guard of {guard.title}: {guard.reason}; {guard.next_step_text}"
        for guard in waiting.guards
    ]
    calls = list(_calls(report, waiting, own))
    reasons = [*(sentence.text for sentence in told), *guards, *calls, *_pauses(waiting)]
    if not reasons:
        lag = sum(report.lag.values()) if report else 0
        reasons = (
            [f"{number_of(lag, 'record')} to be read"]
            if lag
            else ["tasks wait until their records arrive"]
        )
    has_trouble = bool(guards) or any(sentence.urgency.is_trouble for sentence in told)
    return "; ".join(reasons), has_trouble or not (told or calls)


def _calls(report: AgentReport | None, waiting: Waiting, own: int) -> Iterator[str]:
    if report is not None and report.running:
        call = report.oldest_call
        oldest = f", the oldest for {call_text(call)}" if call else ""
        noun = "task runs" if report.running == 1 else "tasks run"
        yield f"{report.running:,} {noun} here{oldest}"
    others = {agent: count for agent, count in waiting.running.items() if agent != own}
    if not others:
        return
    names = [waiting.names.get(agent, f"agent {agent}, which is lost") for agent in others]
    rest = f" and {len(names) - NAMED_AGENTS} more" if len(names) > NAMED_AGENTS else ""
    number = sum(others.values())
    noun = "task runs" if number == 1 else "tasks run"
    yield f"{number:,} {noun} elsewhere: {', '.join(names[:NAMED_AGENTS])}{rest}"


def _pauses(waiting: Waiting) -> Iterator[str]:
    yield from _tries(waiting.retrying, waiting.due_s, "another attempt")
    yield from _tries(waiting.snoozed, waiting.snoozed_due_s, "a try after one that is not counted")
    if waiting.orders:
        noun = "order waits" if waiting.orders == 1 else "orders wait"
        yield f"{waiting.orders:,} {noun} to be published"
    yield from map(half_loaded_message, waiting.half_loaded)


def _tries(number: int, due_s: float | None, what: str) -> Iterator[str]:
    if number and due_s is not None:
        when = f"the first is due in {due_s:.0f} s" if due_s else "the first is due"
        noun = "task waits" if number == 1 else "tasks wait"
        yield f"{number:,} {noun} for {what}, {when}"

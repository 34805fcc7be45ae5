"""The sentences in which an agent's report is shown to a person."""

import shlex
from collections.abc import Callable, Iterable
from typing import NamedTuple

from docllm.producer.text.pace import duration
from docllm.producer.text.urgency import Urgency, urgency_of
from docllm.schemas.agent_report import AgentReport, BlockReport, CallReport, Reason, SuspectReport
from docllm.schemas.codes import Code
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.text.wording import number_of

SHOWN_S = 5.0  # a main loop that was silent for longer is called blocked
SENTENCE_CHARS = 500
_CORRECT = "correct its key, model or address"


_UNKNOWN: dict[str, str] = {
    Code.TOPIC_UNKNOWN: "topic {name} paused: it is missing or was created again, run: "
    "docllm topics apply",
    Code.TOPIC_CHANGED: "topic {name} may lose waiting work: {text}, run: docllm topics apply",
    Code.TYPE_UNKNOWN: "tasks of type {name} wait for an agent that knows it: add "
    "[types.{name}] to the agents' settings",
    Code.ROUTE_REFUSED: "tasks of route {name} wait, {text}; correct the agents' settings, "
    "or load the tasks anew",
    Code.SETTINGS_REFUSED: "the changed settings are not used: {text}",
}


class Sentence(NamedTuple):
    """A reason in words; `about` is equal for the same trouble."""

    urgency: Urgency
    about: tuple[str, str]
    text: str

    @property
    def code(self) -> str:
        """The code of the kind; empty if another version told the reason."""
        return self.urgency.code


def sentences(report: AgentReport, group: str) -> list[Sentence]:
    """Return why something does not run in an agent, the worst first."""
    unsorted = [_sentence(reason, group) for reason in report.reasons]
    unsorted += [
        Sentence(Urgency.SUSPECT_RUNS, ("suspect", str(suspect.task)), suspect_text(suspect))
        for suspect in report.suspects
    ]
    return sorted(unsorted, key=lambda sentence: sentence.urgency)


def blocked(report: AgentReport, name: str) -> list[Sentence]:
    """Return that the agent's event loop is blocked, if it is."""
    if report.blocked_by is not None:
        block = blocking_text(report.blocked_by)
    elif report.loop_age_s > SHOWN_S:
        block = f"for {report.loop_age_s:.0f} s"
    else:
        return []
    text = f"the event loop of {name} has been blocked {block}"
    return [Sentence(Urgency.LOOP_BLOCKED, ("blocked", name), text[:SENTENCE_CHARS])]


def blocking_text(block: BlockReport) -> str:
    """Return for how long an event loop has been blocked, by which task and where."""
    who = f" by task {block.key} of batch {block.batch}, type {block.type}," if block.task else ""
    return f"for {block.blocked_s:.0f} s{who} at {block.place}"


def joined(told_sentences: Iterable[Sentence]) -> str:
    """Return sentences on one line; empty if there is nothing to say."""
    return "; ".join(sentence.text for sentence in told_sentences)


def suspect_text(suspect: SuspectReport) -> str:
    """Return which crash suspect runs."""
    where = "alone in its agent" if suspect.alone else "as the only suspect of its agent"
    return (
        f"task {suspect.key or suspect.task} of batch {suspect.batch} runs {where}: "
        f"{suspect.losses} agents were lost over it"
    )


def call_text(call: CallReport) -> str:
    """Return which call runs and for how long."""
    return f"{call.running_s:.0f} s: task {call.key} of batch {call.batch} on route {call.route}"


def _sentence(reason: Reason, group: str) -> Sentence:
    about = (reason.code, f"{reason.kind} {reason.name}".strip())
    return Sentence(urgency_of(reason.code), about, _text(reason, group)[:SENTENCE_CHARS])


def _text(reason: Reason, group: str) -> str:
    why = ": ".join(filter(None, (reason.error_class, reason.text)))
    match reason.code:
        case Code.ROUTE_PARKED:
            command = f"docllm agent resume {shlex.quote(reason.name)} --group {group}"
            next_try = f"next try in {reason.seconds:.0f} s, or now with: {command}"
            fix = "" if reason.error_class == ErrorClass.MONEY else f"{_CORRECT}, "
            return f"{_route(reason)} is parked, {fix}{next_try}: {why}{_meanwhile(reason)}"
        case Code.ROUTE_STOPPED | Code.ROUTE_PAUSED:
            waits = f"waits {reason.seconds:.0f} s" if reason.seconds > 0 else "tries one call"
            return f"{_route(reason)} {waits}: {why}{_meanwhile(reason)}"
        case Code.CALLS_HANG | Code.LOCK_HELD as code:
            return (_hanging if code == Code.CALLS_HANG else _locked)(reason)
        case code if code in _UNKNOWN:
            return _UNKNOWN[code].format(name=reason.name, text=reason.text)
        case code if code in _SHAPED:
            return _SHAPED[code](reason)
        case _:
            return " ".join(filter(None, (reason.code, reason.name, why)))


def _meanwhile(reason: Reason) -> str:
    return f"; meanwhile its tasks run on route {reason.fallback}" if reason.fallback else ""


def _hanging(reason: Reason) -> str:
    """Return how many calls of a route run far longer than usual."""
    calls = "1 call has" if reason.count == 1 else f"{number_of(reason.count, 'call')} have"
    usual = "" if reason.usual_s is None else f", usually they take {reason.usual_s:.1f} s"
    return f"{_route(reason)}: {calls} been running for {reason.seconds:.0f} s{usual}"


def _locked(reason: Reason) -> str:
    """Return how many tasks wait for a lock, and which one holds it."""
    waits = "1 task waits" if reason.count == 1 else f"{reason.count:,} tasks wait"
    longest = f"for {reason.seconds:.0f} s at most"
    return f"{waits} for the lock {reason.name}, {longest}; {reason.text} holds it"


_COUNTED = {"type": "task", "limit": "use"}  # what a limit of how many at once counts


def _limited(reason: Reason) -> str:
    """Return the sentence about the limit for which tasks wait."""
    whose = f"{reason.kind or 'route'} {reason.name}"
    if not reason.text:
        return f"{whose} waits {reason.seconds:.0f} s: the provider refused calls"
    limit = {
        "rpd": f"{reason.count:,} per day",
        "in_flight": f"{number_of(reason.count, _COUNTED.get(reason.kind, 'call'))} at once",
    }.get(reason.text, f"{reason.count:,} per minute")
    trouble = f"; Redis cannot be used: {reason.trouble}" if reason.trouble else ""
    shared = f"each agent uses its part of it{trouble}"
    agents = number_of(reason.agents, "agent") if reason.agents else shared
    return f"{whose} waits for its {reason.text}: {limit}, {agents}"


def _left_out(reason: Reason) -> str:
    wait = "waits" if reason.count == 1 else "wait"
    return f"{number_of(reason.count, 'more route')} {wait}"


def _route(reason: Reason) -> str:
    """Return the name of a route, with its model and address where they are known."""
    target = " at ".join(filter(None, (reason.model, reason.address)))
    return f"route {reason.name} ({target})" if target else f"route {reason.name}"


def _asleep(reason: Reason) -> str:
    """Return which type waits for its hours."""
    opens = duration(reason.seconds)
    return (
        f"tasks of type {reason.name} wait for their hours ({reason.text}), which begin in {opens}"
    )


_SHAPED: dict[str, Callable[[Reason], str]] = {
    Code.ROUTE_LIMITED: _limited,
    Code.ROUTES_LEFT_OUT: _left_out,
    Code.TYPE_ASLEEP: _asleep,
}

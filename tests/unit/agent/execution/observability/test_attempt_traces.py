"""Spans of attempts: what is told, what is not, and that what is held is bounded."""

from dataclasses import replace
from typing import Any

import pytest

from docllm.agent.execution.observability import attempt_traces
from docllm.agent.execution.observability.attempt_traces import AttemptTraces
from docllm.agent.handlers.calls.permits import CallEnd
from docllm.agent.ports import CallFailed, Reply, Row, Settlement, Verdict
from docllm.agent.ports.outcome import (
    Dead,
    Failure,
    Outcome,
    Released,
    Retry,
    Snooze,
    Spent,
    Succeeded,
)
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.record.trace import SpanId, TraceHeaders, attempt_span, span_of, trace_of
from tests.support.clock import HandClock
from tests.support.ledger import new_row
from tests.support.spans import KeptSpans

SPENT = Spent(model="m", tokens_in=10, tokens_out=5, cost_micro=3, call_id="req-1")
FAILURE = Failure(ErrorClass.BAD_OUTPUT, "the answer says: the secret of the document")
FAILED = CallFailed(ErrorClass.NETWORK, "x")
SUCCESS = Succeeded(b"the whole answer", 0, SPENT)
SENT = SpanId(trace_of("ledger", 7), b"sentsent", sampled=False)
ROW = new_row(status=2, owner=5, fence=3, counted_before=1, task_key=b"k\x1b[31m", batch="b")


class Setting:
    """The traces of one agent, with a task 7 that it claimed as owner 5."""

    def __init__(self, *, ratio: float = 0.0, headers: TraceHeaders | None = None) -> None:
        self.spans, self.clock = KeptSpans(), HandClock()
        self.traces = AttemptTraces(
            spans=self.spans,
            ledger="ledger",
            group="g",
            system="kafka",
            ratio=ratio,
            to_provider=True,
            clock=self.clock,
        )
        trace = headers or TraceHeaders(publication=SENT)
        publication = Publication(
            ledger="ledger", group="g", batch="b", task_id=7, fence=3, trace=trace
        )
        self.traces.claimed([publication], 5, self.clock.utc_s())
        self.clock.at_s += 1

    def call(self, end: CallEnd, model: str = "m") -> str:
        """Make a call; return what the provider was sent."""
        call = self.traces.of(7, 5).call("default", model)
        self.clock.at_s += 2
        call.ended(end)
        return call.traceparent

    def settle(self, outcome: Outcome, verdict: Verdict = Verdict.SETTLED, row: Row = ROW) -> None:
        settlement = Settlement(
            row=row, owner=5, outcome=outcome, route="default", origin=("g.tasks", 2, 41, 900_000)
        )
        self.traces.settled([settlement], [verdict], self.clock.utc_s())

    def names(self) -> list[str]:
        return [span.name for span in self.spans.kept]


def test_an_error_of_tracing_ends_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim, a call that was paid for and a settle go on."""

    def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(attempt_traces, "inert", fail)
    setting = Setting(ratio=1.0)
    setting.call(CallEnd(reply=Reply(200, {}, b"{}"), outcome=SUCCESS))
    setting.settle(SUCCESS)
    monkeypatch.setattr(attempt_traces, "trace_of", fail)
    Setting()


def test_a_failed_attempt_is_told_of_with_its_calls() -> None:
    """What sent its record could not know that it would fail, so the agent tells of it too."""
    setting = Setting()
    sent = setting.call(CallEnd(reply=Reply(200, {}, b"{}"), outcome=Dead(FAILURE, SPENT)))
    setting.settle(Retry(FAILURE, SPENT, "1s", 1.0))

    send, chat, process, settle = setting.spans.kept
    assert setting.names() == ["send g.tasks", "chat m", "process g.tasks", "settle"]
    assert (send.id, send.start_s) == (SENT, 900.0)
    assert chat.parent == process.id.span == attempt_span(7, 5)
    assert chat.id.traceparent == sent
    assert {span.id.trace for span in (send, chat, process)} == {trace_of("ledger", 7)}
    assert (process.start_s, process.end_s) == (1000.0, 1003.0)
    assert process.error == chat.error == "BAD_OUTPUT"
    assert process.links == (SENT,)
    assert process.attributes["gen_ai.usage.input_tokens"] == 10
    assert chat.attributes["http.response.status_code"] == 200
    assert settle.links == (process.id,)
    assert settle.id.trace != process.id.trace


def test_a_success_is_told_of_by_its_share() -> None:
    """Most tasks of a million succeed, and nobody reads a million traces."""
    quiet, all_told = Setting(), Setting(ratio=1.0)
    for setting in (quiet, all_told):
        setting.call(CallEnd(reply=Reply(200, {}, b"{}"), outcome=SUCCESS))
        setting.settle(SUCCESS)
    assert quiet.names() == []
    assert all_told.names() == ["send g.tasks", "chat m", "process g.tasks", "settle"]


def test_a_success_after_a_failure_is_told_of() -> None:
    """A trace that shows a failure shows its end too."""
    setting = Setting(headers=TraceHeaders(publication=replace(SENT, sampled=True)))
    setting.settle(SUCCESS)
    assert setting.names() == ["process g.tasks", "settle"]


def test_a_success_after_a_lost_agent_is_told_of() -> None:
    """The record that is read again still says that nothing has failed."""
    setting = Setting()
    setting.settle(SUCCESS, row=replace(ROW, lease_losses=1))
    assert "process g.tasks" in setting.names()


@pytest.mark.parametrize(
    "verdict", [Verdict.SUPERSEDED, Verdict.DIED, Verdict.RETRIED, Verdict.GIVEN_UP]
)
def test_an_outcome_that_the_ledger_took_otherwise_is_a_failure(verdict: Verdict) -> None:
    """The work of the attempt is lost, or its task has failed."""
    setting = Setting()
    setting.settle(Released(SPENT), verdict)
    assert setting.spans.kept[-2].error == verdict.name


@pytest.mark.parametrize("outcome", [Snooze(FAILURE, SPENT, 1.0), Released()])
def test_an_end_that_does_not_count_is_no_failure(outcome: Outcome) -> None:
    """An outage makes thousands of them."""
    setting = Setting()
    setting.settle(outcome)
    assert setting.names() == []


def test_an_attempt_names_the_one_before_and_a_foreign_producer() -> None:
    """Links lead a person from one attempt to the other."""
    foreign = span_of("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    after = attempt_span(7, 4)
    setting = Setting(headers=TraceHeaders(SENT, foreign, after))
    setting.settle(Dead(FAILURE, SPENT))
    (process,) = [span for span in setting.spans.kept if span.name == "process g.tasks"]
    assert process.links == (SENT, SpanId(trace_of("ledger", 7), after), foreign)


def test_no_text_of_a_document_or_an_answer_is_told() -> None:
    """Not even an error's text, which may quote them; and names are inert."""
    setting = Setting()
    setting.call(CallEnd(reply=Reply(400, {}, b"the body"), outcome=Dead(FAILURE, SPENT)), "m\x00x")
    setting.settle(Dead(FAILURE, SPENT))
    said = repr(setting.spans.kept)
    assert "secret" not in said
    assert "body" not in said
    assert "\\x1b" not in said
    assert "\\x00" not in said


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (CallEnd(), "cancelled"),
        (CallEnd(reply=FAILED, outcome=Retry(FAILURE, SPENT, "", 0)), "NETWORK"),
        (CallEnd(reply=Reply(200, {}, b""), outcome=SUCCESS), ""),
    ],
)
def test_a_call_says_how_it_ended(end: CallEnd, error: str) -> None:
    """One that was cancelled has no outcome."""
    setting = Setting()
    setting.call(end)
    setting.settle(Dead(FAILURE, SPENT))
    assert setting.spans.kept[1].error == error


def test_what_is_held_is_bounded(monkeypatch: Any) -> None:
    """A long document makes thousands of calls, and a claim may never be settled."""
    monkeypatch.setattr(attempt_traces, "MAX_ATTEMPTS", 3)
    setting = Setting()
    for _ in range(attempt_traces.MAX_CALLS + 9):
        setting.call(CallEnd(reply=Reply(200, {}, b""), outcome=SUCCESS))
    for owner in range(6, 8):
        setting.traces.claimed(
            [Publication(ledger="ledger", group="g", batch="b", task_id=7, fence=3)], owner, 0.0
        )
    setting.settle(Dead(FAILURE, SPENT))
    process = setting.spans.kept[-2]
    assert process.attributes["docllm.calls_left_out"] == 9
    assert len(setting.spans.kept) == 1 + attempt_traces.MAX_CALLS + 2

    for owner in range(8, 20):
        setting.traces.claimed(
            [Publication(ledger="ledger", group="g", batch="b", task_id=7, fence=3)], owner, 0.0
        )
    assert len(setting.traces._open) == 3
    assert setting.traces.of(7, 8).trace_id == ""
    assert setting.traces.of(7, 19).trace_id == trace_of("ledger", 7).hex()


def test_a_settle_names_at_most_so_many_attempts() -> None:
    """A group has hundreds of them."""
    setting = Setting()
    owners = range(100, 300)
    publications = [Publication(ledger="ledger", group="g", batch="b", task_id=7, fence=3)]
    for owner in owners:
        setting.traces.claimed(publications, owner, 0.0)
    settlements = [
        Settlement(
            row=ROW,
            owner=owner,
            outcome=Dead(FAILURE, SPENT),
            route="default",
            origin=("t", 0, 0, 0),
        )
        for owner in owners
    ]
    setting.traces.settled(settlements, [Verdict.SETTLED] * len(owners), 1.0)
    settle = setting.spans.kept[-1]
    assert len(settle.links) == attempt_traces.MAX_LINKS
    assert settle.attributes["db.operation.batch.size"] == 200

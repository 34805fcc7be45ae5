"""An agent's summary, and its lines about dead tasks and failed attempts."""

from dataclasses import fields
from pathlib import Path

import pytest

from docllm.agent.ports import Verdict
from docllm.agent.ports.outcome import Dead, Failure, Released, Retry, Spent, Succeeded
from docllm.agent.reporting.telemetry import LINE_EVERY_S, Counts, dead_lines
from docllm.schemas.task.failures import ErrorClass

ROOT = Path(__file__).parents[4]
GOOD = Succeeded(b"{}", 0, Spent())


def dead(error_class: ErrorClass, text: str) -> Dead:
    return Dead(Failure(error_class, text), Spent())


def noted(
    *outcomes: Dead | Succeeded | Released | Retry, verdict: Verdict = Verdict.SETTLED
) -> Counts:
    counts = Counts()
    for outcome in outcomes:
        counts.note(outcome, verdict)
    return counts


def test_each_class_of_dead_tasks_is_logged_with_an_example_and_a_command() -> None:
    """Each class of dead tasks is logged with an example, and once the command to see them.

    Sixty of sixty tasks died of one parameter, and the log used to say only "60 dead".
    """
    refused = [dead(ErrorClass.BAD_REQUEST, f"400: no parameter {number}") for number in range(2)]
    counts = noted(*refused, dead(ErrorClass.TOO_LONG, "400: too long\x1b[31m\nFORGED"), GOOD)

    assert counts.death_news("g") == [
        "2 tasks dead with BAD_REQUEST, for example 400: no parameter 1",
        (
            "1 task dead with TOO_LONG, for example 400: too long [31m FORGED; more: "
            "docllm dead list --group g"
        ),
    ]


def test_dead_tasks_are_logged_once() -> None:
    """Each minute the log names the classes in which tasks died since, with their total."""
    counts = noted(dead(ErrorClass.BAD_REQUEST, "a"), dead(ErrorClass.TOO_LONG, "b"))
    assert len(counts.death_news("g")) == 2
    assert counts.death_news("g") == []

    counts.note(dead(ErrorClass.TOO_LONG, "c"), Verdict.SETTLED)

    assert [line.partition(";")[0] for line in counts.death_news("g")] == [
        "2 tasks dead with TOO_LONG, for example c"
    ]


def test_a_death_that_the_ledger_refused_is_not_logged() -> None:
    """A death that the ledger refused is not counted: another agent had the task by then."""
    assert noted(dead(ErrorClass.TOO_LONG, "x"), verdict=Verdict.SUPERSEDED).death_news("g") == []


@pytest.mark.parametrize(
    ("verdict", "summary"),
    [
        (Verdict.CANCELLED, "0 succeeded, 1 cancelled"),
        (Verdict.RETRIED, "0 succeeded, 1 to be tried again"),
        (Verdict.DIED, "0 succeeded, 1 dead"),
        (Verdict.HELD_BACK, "0 succeeded, 1 put off uncounted"),
    ],
)
def test_what_the_ledger_wrote_is_counted(verdict: Verdict, summary: str) -> None:
    """The ledger may have replaced the outcome of the attempt."""
    assert noted(Released(), verdict=verdict).summary() == summary


def test_the_page_explains_each_word_of_a_summary() -> None:
    """The words are true for all causes of a count; the page names the causes."""
    page = (ROOT / "docs" / "how-to" / "watch.md").read_text()
    names = {count.name for count in fields(Counts) if count.default == 0}
    counts = Counts()
    for name in names - {"quarantined", "attempts"}:
        setattr(counts, name, 1)

    words = [text.removeprefix("1 ") for text in counts.summary().split(", ")]

    assert len(words) == len(names) - 2
    assert [word for word in words if f"`{word}`" not in page] == []


def test_a_summary_uses_proper_plurals() -> None:
    """The summary has proper plurals; it used to say "1 attempts"."""
    counts = noted(GOOD)
    counts.attempts = 1
    assert counts.summary() == "1 succeeded, 1 attempt in all"

    counts.attempts = 2
    assert counts.summary() == "1 succeeded, 2 attempts in all"


def test_a_program_that_waits_for_a_group_reports_all_its_dead_tasks() -> None:
    """The last agent to leave reports all dead tasks of the group, not only its own."""
    assert dead_lines("g", {"a": 0}) == []
    assert dead_lines("g", {"a": 2, "b": 0, "c": 1}) == [
        ("dead in group g: 3 tasks (2 in a, 1 in c); to see why: docllm dead list --group g")
    ]
    assert ", ...)" in dead_lines("g", {str(number): 1 for number in range(6)})[0]


def test_tasks_that_died_lately_are_not_reported_twice() -> None:
    """The lines of these tasks name the command already."""
    assert dead_lines("g", {"a": 2}, dead_lately=2) == []
    assert dead_lines("g", {"a": 2, "b": 1}, dead_lately=2) == [
        "dead in group g in all: 3 tasks (2 in a, 1 in b)"
    ]


def test_an_agent_that_did_all_has_nothing_to_add() -> None:
    """The line of the group has the same counts."""
    counts = noted(GOOD, dead(ErrorClass.TOO_LONG, "x"))

    assert not counts.adds_to(succeeded=1, dead=1, cancelled=0)
    assert counts.adds_to(succeeded=2, dead=1, cancelled=0)
    assert noted(GOOD, Released()).adds_to(succeeded=1, dead=0, cancelled=0)


def test_why_attempts_are_made_again_is_kept_for_the_log() -> None:
    """The error of an attempt that the ledger sent to a tier is kept; a refused one is not."""
    again = Retry(Failure(ErrorClass.NETWORK, "connection refused"), Spent(), "30s", 30.0)

    assert len(noted(again).retry_news(0.0, "g")) == 1
    assert noted(again, verdict=Verdict.SUPERSEDED).retry_news(0.0, "g") == []


def test_the_first_of_a_class_is_told_at_once_and_the_others_once_a_minute() -> None:
    """A class is told again only a minute later, and only if more attempts failed."""

    def again(error_class: ErrorClass, text: str) -> None:
        counts.note(Retry(Failure(error_class, text), Spent(), "30s", 30.0), Verdict.SETTLED)

    counts = Counts()
    again(ErrorClass.NETWORK, "connection 1 refused")
    first = counts.retry_news(0.0, "g")
    again(ErrorClass.NETWORK, "connection 2 refused")
    again(ErrorClass.SERVER, "500")
    again(ErrorClass.HANDLER, "KeyError: 'total'")  # logged elsewhere, with its traceback
    soon = counts.retry_news(1.0, "g")
    later = counts.retry_news(LINE_EVERY_S, "g")

    assert [line.partition(";")[0] for line in (*first, *soon, *later)] == [
        "1 attempt failed and will be made again, with NETWORK, such as: connection 1 refused",
        "1 attempt failed and will be made again, with SERVER, such as: 500",
        "2 attempts failed and will be made again, with NETWORK, such as: connection 2 refused",
    ]
    assert counts.retry_news(LINE_EVERY_S * 3, "g") == []

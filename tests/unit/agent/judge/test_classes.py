"""The table of classes: every class in every case."""

from dataclasses import replace
from typing import Any

import pytest

from docllm.agent.judge import CLASSES, Action, Effect, effect_of, judge, outcome_of_failure
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Failure, Snooze, Spent
from docllm.agent.routes.evidence import by_outcome
from docllm.schemas.task.failures import ErrorClass
from tests.support.handlers import failure_of
from tests.support.replies import DEAD, FACTS, RETRIED, SNOOZED, became

CASES: dict[str, tuple[dict[str, Any], str | None]] = {
    "first attempt": ({}, None),
    "second attempt": ({"counted_before": 1}, None),
    "attempt beyond the tiers": ({"counted_before": 3}, None),
    "last attempt": ({"counted_before": 4}, None),
    "one attempt in all": ({"max_attempts": 1}, None),
    "more attempts than are allowed": ({"counted_before": 9}, None),
    "asked for less than the tier": ({}, "20"),
    "asked for more than the tier": ({}, "60"),
    "asked for more than any tier": ({}, "7200"),
    "asked for more than a day": ({}, "9999999"),
    "asked for on the last attempt": ({"counted_before": 4}, "60"),
}
# The outcome of a class of each action, case by case, and the seconds that it waits, with a jitter
# of one half.
BECOMES: dict[Action, dict[str, tuple[object, ...]]] = {
    Action.SNOOZE: {
        "first attempt": (SNOOZED, 1.5),
        "second attempt": (SNOOZED, 1.5),
        "attempt beyond the tiers": (SNOOZED, 1.5),
        "last attempt": (SNOOZED, 1.5),
        "one attempt in all": (SNOOZED, 1.5),
        "more attempts than are allowed": (SNOOZED, 1.5),
        "asked for less than the tier": (SNOOZED, 21),
        "asked for more than the tier": (SNOOZED, 63),
        "asked for more than any tier": (SNOOZED, 630),
        "asked for more than a day": (SNOOZED, 630),
        "asked for on the last attempt": (SNOOZED, 63),
    },
    Action.RETRY: {
        "first attempt": (RETRIED, "30s", 33),
        "second attempt": (RETRIED, "5m", 330),
        "attempt beyond the tiers": (RETRIED, "1h", 3960),
        "last attempt": (DEAD, "exhausted"),
        "one attempt in all": (DEAD, "exhausted"),
        "more attempts than are allowed": (DEAD, "exhausted"),
        "asked for less than the tier": (RETRIED, "30s", 33),
        "asked for more than the tier": (RETRIED, "5m", 330),
        "asked for more than any tier": (RETRIED, "1h", 3960),
        "asked for more than a day": (RETRIED, "1h", 3960),
        "asked for on the last attempt": (DEAD, "exhausted"),
    },
    Action.GIVE_UP: dict.fromkeys(CASES, (DEAD, "permanent")),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", CLASSES)
def test_every_cell_of_the_table(name: ErrorClass, case: str) -> None:
    """Each class in each case is snoozed uncounted, sent to a tier and counted, or given up."""
    changes, asked = CASES[case]
    headers = {} if asked is None else {"retry-after": asked}

    outcome = outcome_of_failure(Failure(name, "x"), Spent(), replace(FACTS, **changes), headers)

    assert became(outcome) == BECOMES[CLASSES[name].action][case]
    assert outcome.failure.error_class == name
    assert outcome.failure.text.split(" (asked for a wait of ")[0] == "x"


def test_each_class_stands_where_it_belongs() -> None:
    """Nobody's fault is snoozed, a fault that may pass is retried, a permanent one is given up."""
    by_action = {
        action: {name for name, rule in CLASSES.items() if rule.action is action}
        for action in Action
    }

    assert by_action[Action.SNOOZE] == set(
        "RATE RAMP CAPACITY MONEY AUTH OUTPUT_UNWRITABLE".split()
    )
    assert by_action[Action.RETRY] == set(
        "SERVER NETWORK AMBIGUOUS BAD_OUTPUT HANDLER DOCUMENT_UNREADABLE".split()
    )


@pytest.mark.parametrize(
    ("effect", "names"),
    [
        (Effect.OUTAGE, "SERVER NETWORK AMBIGUOUS"),
        (Effect.REFUSAL, "RATE RAMP CAPACITY"),
        (Effect.LOCKED, "MONEY AUTH"),
        (Effect.UP, "BAD_OUTPUT TOO_LONG INPUT_CUT FILTERED BAD_REQUEST REPLY_TOO_LARGE"),
        (
            Effect.NONE,
            (
                "HANDLER HANDLER_GAVE_UP DOCUMENT_UNREADABLE DOCUMENT_REFUSED DOCUMENT_CHANGED "
                "OUTPUT_UNWRITABLE OUTPUT_REFUSED"
            ),
        ),
    ],
)
def test_each_class_has_an_effect_on_its_route(effect: Effect, names: str) -> None:
    """An outage is a failure for the breaker; an answer about one task proves the provider up."""
    assert {name for name, rule in CLASSES.items() if rule.route is effect} == set(names.split())
    assert {effect_of(ErrorClass[name]) for name in names.split()} == {effect}


def test_a_class_that_the_judge_does_not_make_tells_nothing_of_the_route() -> None:
    """A class that the judge does not make says nothing about the route.

    Examples are an expired task and a bug of ours.
    """
    ours = (ErrorClass.EXPIRED, ErrorClass.INTERNAL, ErrorClass.UNDECODABLE)

    assert {effect_of(name) for name in ours} == {Effect.NONE}


@pytest.mark.parametrize(
    "name", [name for name, rule in CLASSES.items() if rule.action is Action.SNOOZE]
)
def test_a_class_that_waits_waits_even_if_others_are_answered(name: ErrorClass) -> None:
    """A limit, a lack of money or a wrong key concerns all tasks."""
    alone = replace(FACTS, refused_alone=True)

    assert became(outcome_of_failure(Failure(name, "x"), Spent(), alone)) == (SNOOZED, 1.5)


@pytest.mark.parametrize(
    ("status", "refused_alone", "ended"),
    [
        (403, False, (SNOOZED, 1.5)),
        (403, True, (RETRIED, "30s", 33.0)),
        (404, True, (RETRIED, "30s", 33.0)),
        (401, True, (SNOOZED, 1.5)),
    ],
)
def test_a_firewall_that_refuses_one_document_is_no_wrong_key(
    status: int, ended: object, *, refused_alone: bool
) -> None:
    """A firewall answers 403 to one document as for a wrong key; then the request is bad."""
    body = b"<html><title>403 Forbidden</title>blocked by our firewall</html>"

    outcome = judge(Reply(status, {}, body), replace(FACTS, refused_alone=refused_alone))

    assert became(outcome) == ended
    failure = failure_of(outcome)
    assert "blocked by our firewall" in failure.text
    assert failure.error_class == ("AUTH" if isinstance(outcome, Snooze) else "BAD_REQUEST")


@pytest.mark.parametrize("attempt", range(1, 6))
def test_a_document_that_is_refused_alone_ends_after_its_attempts(attempt: int) -> None:
    """A key that works at times costs no task; a document that is always refused has an end.

    Each retry waits in the first tier, because nothing has to recover meanwhile.
    """
    facts = replace(FACTS, refused_alone=True, counted_before=attempt - 1, max_attempts=5)

    outcome = judge(Reply(403, {}, b""), facts)

    ended = (DEAD, "exhausted") if attempt == 5 else (RETRIED, "30s", 33.0)
    assert became(outcome) == ended
    assert by_outcome(outcome).effect is Effect.NONE


def test_a_wait_that_is_too_long_to_be_believed_is_named() -> None:
    """One refusal that asks for a day holds its task for ten minutes; the text says so."""
    body = b'{"error": {"message": "Please retry later."}}'
    outcome = judge(Reply(429, {"retry-after": "86400"}, body), FACTS)

    assert became(outcome) == (SNOOZED, 630)
    assert failure_of(outcome).text == (
        "429: Please retry later. (asked for a wait of 24.0 h; asked again after 10 min)"
    )


def test_a_type_may_wait_longer() -> None:
    """A type's least wait raises the tier as a Retry-After does; the longer of the two wins."""
    patient = replace(FACTS, min_retry_s=120.0)

    assert became(outcome_of_failure(Failure(ErrorClass.SERVER, "x"), Spent(), patient)) == (
        RETRIED,
        "5m",
        330,
    )
    assert became(
        outcome_of_failure(
            Failure(ErrorClass.SERVER, "x"), Spent(), patient, {"retry-after": "400"}
        )
    ) == (
        RETRIED,
        "1h",
        3960,
    )
    assert became(outcome_of_failure(Failure(ErrorClass.RATE, "x"), Spent(), patient)) == (
        SNOOZED,
        1.5,
    )

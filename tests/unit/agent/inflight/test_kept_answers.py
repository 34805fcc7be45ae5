"""Answers that were paid and not settled are kept within bounds."""

from dataclasses import replace

from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.table import KeptAnswers
from docllm.agent.ports.outcome import Spent, Succeeded
from docllm.schemas.task.result.codec import COMPLETION
from tests.support.slots import claimed

LIMITS = InFlightLimits()
ANSWER = Succeeded(b"answer", COMPLETION, Spent())


def test_answers_that_were_paid_and_superseded_are_bounded() -> None:
    """At most a thousand paid answers of superseded settlements are stored; the oldest go first."""
    answers = KeptAnswers(LIMITS)
    kept = [claimed(number, 0.0) for number in range(LIMITS.kept_answers + 2)]
    dropped = [answers.keep(delivery, ANSWER) for delivery in kept]

    assert dropped == [*[0] * LIMITS.kept_answers, 1, 1]
    assert [delivery.kept_answer is None for delivery in kept] == [
        True,
        True,
        *[False] * LIMITS.kept_answers,
    ]


def test_kept_answers_are_bounded_in_bytes_too() -> None:
    """A thousand answers of the longest kind would need more memory than an agent has."""
    limits = replace(LIMITS, kept_answers_bytes=2 * len(ANSWER.body))
    answers, kept = KeptAnswers(limits), [claimed(number, 0.0) for number in range(4)]

    dropped = [answers.keep(delivery, ANSWER) for delivery in kept[:3]]
    answers.forget(kept[1])
    dropped.append(answers.keep(kept[3], ANSWER))

    assert dropped == [0, 0, 1, 0]
    assert [delivery.kept_answer for delivery in kept] == [None, None, ANSWER, ANSWER]


def test_the_newest_paid_answer_of_a_task_is_kept_by_its_own_age() -> None:
    """A task with two superseded answers has one place among the kept ones, by its newest one."""
    answers = KeptAnswers(LIMITS)
    twice, *others = [claimed(number, 0.0) for number in range(LIMITS.kept_answers + 1)]
    for delivery in (twice, *others[:-1], twice, others[-1]):
        answers.keep(delivery, ANSWER)

    assert twice.kept_answer is not None
    assert others[0].kept_answer is None

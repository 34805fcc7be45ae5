"""The level of calls: what one round of calls does to it."""

import pytest

from docllm.agent.routes.answer_times import AnswerTimes
from docllm.agent.routes.level import (
    CUTS,
    FASTER,
    GROWTH,
    MAX_CHANCE,
    MIN_CALLS,
    SHORT_S,
    SLOW_FASTER,
    ConcurrencyLevel,
)

USUAL_S = 1.0
CALLS = 100


def new_level(calls: float = CALLS, usual_s: float = USUAL_S) -> ConcurrencyLevel:
    """Return a level where answers take a second, unless told otherwise."""
    times = AnswerTimes()
    times.add(usual_s)
    level = ConcurrencyLevel(calls=calls, times=times)
    level.restart_at(calls, 0.0)
    return level


def a_round(level: ConcurrencyLevel, began_s: float, refused: int = 0, calls: int = CALLS) -> None:
    """Begin calls over a second; the first of them are refused at once, the others answered."""
    starts_s = [began_s + USUAL_S * number / calls for number in range(calls)]
    for start_s in starts_s:
        level.note_began(start_s)
    for start_s in starts_s[:refused]:
        level.note_refused(start_s, start_s)
    for start_s in starts_s[refused:]:
        level.note_answered(start_s, start_s + USUAL_S)


def rounds(level: ConcurrencyLevel, *refused: int) -> None:
    """Let rounds follow each other."""
    for number, count in enumerate(refused):
        a_round(level, 1.0 + 3 * number, count)


def test_a_round_with_refusals_lowers_the_level_by_half_of_their_share() -> None:
    """A fifth of refused calls lowers the level by a tenth."""
    level = new_level()
    rounds(level, 20)

    assert level.calls == pytest.approx(90.0)


@pytest.mark.parametrize(("usual_s", "factor"), [(SHORT_S, FASTER), (USUAL_S, SLOW_FASTER)])
def test_each_round_without_a_refusal_raises_the_level_by_more(
    usual_s: float, factor: float
) -> None:
    """The level rises by 3 %, then by twice or three times as much; a refusal ends that."""
    level = new_level(usual_s=usual_s)
    rounds(level, 0, 0)
    assert level.calls == pytest.approx(CALLS * (1 + GROWTH) * (1 + factor * GROWTH), rel=0.01)

    before = level.calls
    a_round(level, 20.0, 10)
    a_round(level, 23.0)
    assert level.calls == pytest.approx(before * 0.95 * (1 + GROWTH), rel=0.01)


def test_a_level_that_is_not_used_stays_for_a_minute() -> None:
    """Few calls without a refusal say nothing of what lies above the level."""
    level = new_level()
    rounds(level, 20)
    for second in range(10, 50):
        a_round(level, float(second), calls=MIN_CALLS)
    assert level.calls == pytest.approx(90.0)

    for second in range(50, 90):
        a_round(level, float(second), calls=MIN_CALLS)
    assert level.calls > 2 * CALLS


def test_a_share_that_stays_while_the_level_falls_is_by_chance() -> None:
    """After six rounds with a tenth refused, the level is as before, and rises."""
    level = new_level()
    rounds(level, *[10] * CUTS)
    assert level.calls == pytest.approx(CALLS)

    a_round(level, 50.0, 10)
    assert level.calls > CALLS


def test_a_share_that_falls_with_the_level_is_a_limit() -> None:
    """Refusals that become fewer with the level come from a limit, which stays in force."""
    level = new_level()
    rounds(level, 20, 16, 12, 6, 3, 2)
    before = level.calls
    a_round(level, 50.0, 5)

    assert level.calls == pytest.approx(before * 0.975)


def test_a_great_share_is_never_by_chance() -> None:
    """A share above a quarter lowers the level each time."""
    level = new_level()
    share = round(CALLS * (MAX_CHANCE + 0.05))
    rounds(level, *[share] * (2 * CUTS))

    assert level.calls == pytest.approx(CALLS * (1 - share / CALLS / 2) ** (2 * CUTS))


def test_slow_refusals_count_for_the_round_in_which_their_calls_began() -> None:
    """A round is judged only when calls could have been refused as late as others were."""
    level = new_level()
    rounds(level, 0)
    level.note_began(5.0)
    level.note_refused(5.0, 9.0)  # so long do refusals take here
    before = level.calls
    starts_s = [10.0 + number / CALLS for number in range(CALLS)]
    for start_s in starts_s:
        level.note_began(start_s)
    for start_s in starts_s[20:]:
        level.note_answered(start_s, start_s + USUAL_S)
    assert level.calls == before

    for start_s in starts_s[:20]:
        level.note_refused(start_s, start_s + 4.0)
    assert level.calls < 0.95 * before


def test_a_call_that_began_before_the_level_fell_says_nothing_of_it() -> None:
    """What was begun at a higher level does not lower the level twice."""
    level = new_level()
    level.note_began(0.5)
    rounds(level, 20)
    before = level.calls
    level.note_refused(0.5, 4.0)
    a_round(level, 5.0, calls=CALLS)

    assert level.calls == pytest.approx(before * (1 + GROWTH), rel=0.01)

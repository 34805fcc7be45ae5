"""A stopped route is probed by one call at a time, paced, limited, and not by one task only."""

from itertools import pairwise

import pytest

from docllm.agent.routes.answer_times import AnswerTimes
from docllm.agent.routes.probe_schedule import ProbeSchedule


def probes(
    *,
    timeout_s: float = 600.0,
    jitter: float = 0.5,
    parked: bool = False,
    times: AnswerTimes | None = None,
) -> ProbeSchedule:
    """Return the probes of a route that stopped at 100 s."""
    schedule = ProbeSchedule(
        times=times or AnswerTimes(), timeout_s=timeout_s, park_s=60.0, jitter=lambda: jitter
    )
    schedule.begin(100.0, parked=parked)
    return schedule


def test_intervals_grow_from_start_to_start() -> None:
    """Probe intervals start at 2 s and grow by half up to 4 s, however long a probe takes."""
    schedule, starts = probes(), [100.0]
    for _ in range(5):
        assert not schedule.task_due(schedule.next_at_s - 0.01)
        starts.append(schedule.next_at_s)
        schedule.start(starts[-1])
        schedule.end()

    assert [round(after - before, 3) for before, after in pairwise(starts)] == [
        2.0,
        3.0,
        4.0,
        4.0,
        4.0,
    ]


@pytest.mark.parametrize(("jitter", "first_s"), [(0.0, 101.8), (1.0, 102.2)])
def test_agents_do_not_probe_in_step(jitter: float, first_s: float) -> None:
    """Each interval varies by a tenth to either side, so agents do not probe in step."""
    assert probes(jitter=jitter).next_at_s == pytest.approx(first_s)


def test_a_parked_route_is_tried_at_its_own_pace() -> None:
    """A parked route is tried every minute, since a person must act; the interval does not grow."""
    schedule = probes(parked=True)
    for start_s in (160.0, 220.0, 280.0):
        assert (schedule.task_due(start_s - 0.01), schedule.task_due(start_s)) == (False, True)
        schedule.start(start_s)
        schedule.end()


def test_one_probe_at_a_time() -> None:
    """Only one probe runs at a time; one that ended late is followed at once."""
    schedule = probes()
    schedule.start(102.0)

    assert not schedule.task_due(130.0)
    schedule.end()
    assert schedule.task_due(130.0)


@pytest.mark.parametrize(
    ("answered_in_s", "limit_s"),
    [
        ([], 600.0),
        ([0.1, 0.2], 2.0),
        ([0.2, 5.0, 0.3], 20.0),
        ([200.0], 600.0),
        ([5.0] + [1.0] * 100, 4.0),
    ],
)
def test_a_probe_ends_long_before_a_calls_own_limit(
    answered_in_s: list[float], limit_s: float
) -> None:
    """A probe may take four times the slowest recent answer, at least 2 s.

    It never takes longer than a call may. If no answer is known, that is its limit.
    """
    times = AnswerTimes()
    for duration_s in answered_in_s:
        times.add(duration_s)
    schedule = probes(times=times)

    assert schedule.start(102.0) == limit_s


@pytest.mark.parametrize("task_ids", [[7, 7], [7, 8, 7], list(range(10))])
def test_tasks_that_fail_make_room_for_the_prompt(task_ids: list[int]) -> None:
    """One task that failed twice, or ten tasks, may be at fault themselves.

    After the prompt has failed too, tasks have their turn again.
    """
    schedule = probes()
    for task_id in task_ids[:-1]:
        schedule.note_failure(task_id)
        assert (schedule.task_due(110.0), schedule.prompt_due(110.0)) == (True, False)

    schedule.note_failure(task_ids[-1])
    assert (schedule.task_due(110.0), schedule.prompt_due(110.0)) == (False, True)
    schedule.note_failure(None)
    schedule.note_failure(task_ids[0])
    assert (schedule.task_due(110.0), schedule.prompt_due(110.0)) == (True, False)


def test_a_task_that_succeeds_clears_the_others() -> None:
    """The provider was at fault then; the prompt's success says nothing about tasks."""
    schedule = probes()
    schedule.note_failure(7)
    schedule.note_success(None)
    schedule.note_failure(7)
    assert not schedule.task_due(110.0)

    schedule.begin(200.0, parked=False)
    schedule.note_success(8)
    schedule.note_failure(7)

    assert schedule.task_due(210.0)


def test_the_prompt_is_sent_only_where_a_task_waits() -> None:
    """The prompt is sent only where a task waits, so nobody pays to learn about an unused route."""
    schedule = probes()
    schedule.note_failure(7)
    schedule.note_failure(7)
    assert not schedule.prompt_due(110.0)

    schedule.task_due(111.0)

    assert (schedule.prompt_due(112.9), schedule.prompt_due(113.1)) == (True, False)


def test_a_turn_is_good_for_one_probe() -> None:
    """Agents that share a route need the turn for each probe, and its start uses the turn up."""
    schedule = probes()
    schedule.wait_for_turn(110.0)
    assert (schedule.task_due(120.0), schedule.has_turn(120.0)) == (False, False)

    schedule.note_turn(120.0, until_s=125.0)
    assert (schedule.task_due(120.0), schedule.has_turn(120.0)) == (True, True)
    schedule.start(120.0)
    schedule.end()

    assert (schedule.task_due(200.0), schedule.has_turn(121.0)) == (False, False)


def test_a_turn_that_ran_out_is_not_revived() -> None:
    """An agent that slept past its turn's lease leaves the probe to the others."""
    schedule = probes()
    schedule.note_turn(110.0, until_s=115.0)

    assert (schedule.task_due(114.9), schedule.task_due(115.0)) == (True, False)


def test_an_agent_alone_needs_no_turn() -> None:
    """Without Redis, each agent probes for itself, at its own pace."""
    schedule = probes()
    schedule.wait_for_turn(110.0)
    schedule.probe_without_turn()

    assert (schedule.task_due(109.9), schedule.task_due(110.0)) == (False, True)

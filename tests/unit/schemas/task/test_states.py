"""The table of legal transitions."""

import pytest

from docllm.schemas.task.states import FINAL, OPEN, SETTLES, TRANSITIONS, WAITING, Status


def test_the_states_keep_the_numbers_that_the_database_stores() -> None:
    """The stored numbers are in every ledger and may not change."""
    assert {status.name: int(status) for status in Status} == {
        "PENDING": 0,
        "PROCESSING": 1,
        "RETRYING": 2,
        "SUCCEEDED": 3,
        "DEAD": 4,
        "CANCELLED": 5,
    }


def test_a_final_state_is_left_by_replay_alone() -> None:
    """Succeeded tasks stay; dead and cancelled ones return only by a person's replay."""
    leaving = {
        (status, name)
        for name, transition in TRANSITIONS.items()
        for status in transition.sources
        if status in FINAL
    }

    assert leaving == {(Status.DEAD, "replay"), (Status.CANCELLED, "replay")}


def test_only_waiting_tasks_are_claimed() -> None:
    """A claim takes pending and retrying tasks, and only a claim makes a task processing."""
    assert TRANSITIONS["claim"].sources == WAITING
    assert [
        name for name, transition in TRANSITIONS.items() if transition.target is Status.PROCESSING
    ] == ["claim"]


def test_a_settle_takes_what_runs_or_was_reaped() -> None:
    """Pending is a source of the settle, for the late settle of a reaped task."""
    assert SETTLES == (Status.PROCESSING, Status.PENDING)
    for name in ("succeed", "retry", "move", "give_up", "snooze", "release"):
        assert TRANSITIONS[name].sources == SETTLES


def test_the_fence_rises_when_a_new_record_is_ordered_and_only_then() -> None:
    """The fence rises only with a new record, never at claim, release or reap.

    Therefore a record that is redelivered after a crash can be claimed at once.
    """
    assert {name for name, transition in TRANSITIONS.items() if transition.fence} == {
        "retry",
        "move",
        "replay",
    }


@pytest.mark.parametrize("status", OPEN)
def test_every_open_state_can_end(status: Status) -> None:
    """From every open state, transitions lead to every final state."""
    reached = {status}
    for _ in Status:
        reached |= {
            transition.target
            for transition in TRANSITIONS.values()
            if reached & set(transition.sources)
        }

    assert set(FINAL) <= reached


def test_each_state_is_open_or_final() -> None:
    assert {*OPEN, *FINAL} == set(Status)

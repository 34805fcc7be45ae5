"""On one machine a free lock proves a death."""

from pathlib import Path

from docllm.agent.membership.life_locks import LifeLocks


def test_a_lock_that_is_free_is_a_death(tmp_path: Path) -> None:
    """An agent is not dead while its process holds its lock.

    Unknown agents cannot be judged, and a removed file proves nothing.
    """
    own_locks, others = LifeLocks(tmp_path), LifeLocks(tmp_path)
    own_locks.hold(7)

    assert not others.has_process_ended(7)
    assert not others.has_process_ended(8)
    own_locks.close()
    assert others.has_process_ended(7)
    others.remove(7)
    assert not others.has_process_ended(7)


def test_a_process_releases_all_its_locks_at_its_end(tmp_path: Path) -> None:
    """Each incarnation of a process has its own lock; none of them outlives the process."""
    own_locks = LifeLocks(tmp_path / "made" / "here")
    for agent_id in (1, 2):
        own_locks.hold(agent_id)

    own_locks.close()

    assert all(
        LifeLocks(tmp_path / "made" / "here").has_process_ended(agent_id) for agent_id in (1, 2)
    )

"""Locks prove on one machine that an agent is dead."""

from pathlib import Path

from docllm.agent.membership.life_locks import LifeLocks


def test_an_agent_is_dead_when_its_lock_is_free(tmp_path: Path) -> None:
    """An agent whose file does not exist yet is not dead: its row is written first."""
    own, other = LifeLocks(tmp_path), LifeLocks(tmp_path)
    assert not other.has_process_ended(7)

    own.hold(7)
    assert not other.has_process_ended(7)
    own.close()

    assert other.has_process_ended(7)
    other.remove(7)
    assert not other.has_process_ended(7)

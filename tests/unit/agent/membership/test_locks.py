"""Locks prove on one machine that an agent is dead."""

from pathlib import Path

from agent.membership.locks import AgentLocks


def test_an_agent_is_dead_when_its_lock_is_free(tmp_path: Path) -> None:
    """An agent whose file does not exist yet is not dead: its row is written first."""
    own, other = AgentLocks(tmp_path), AgentLocks(tmp_path)
    assert not other.has_process_ended(7)

    own.hold(7)
    assert not other.has_process_ended(7)
    own.close()

    assert other.has_process_ended(7)
    other.remove(7)
    assert not other.has_process_ended(7)

"""Proof of death on one machine: each agent incarnation holds a lock on a file of its own; a lock that is free is a death.

Only the embedded parts use this; across machines the heartbeat alone decides.
"""

from pathlib import Path

from producer.bus.lock import LifeLock, forget, is_dead


class AgentLocks:
    """The lock files of the agents of one data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: list[LifeLock] = []

    def hold(self, agent_id: int) -> None:
        """Hold the lock of an incarnation of this process until the process ends."""
        self._held.append(LifeLock(self._folder, str(agent_id)))

    def dead(self, agent_id: int) -> bool:
        """Return whether the process of an incarnation is gone; False while it has no file, since its row comes first."""
        return (self._folder / f"{agent_id}.lock").exists() and is_dead(self._folder, str(agent_id))

    def remove(self, agent_id: int) -> None:
        """Remove the file of an incarnation that is gone."""
        forget(self._folder, str(agent_id))

    def close(self) -> None:
        """Let go of the locks of this process."""
        while self._held:
            self._held.pop().release()

"""Proof of death on one machine: each incarnation holds a lock on a file of its own.

A free lock means that the incarnation is dead. Only the embedded parts use locks; across machines
the heartbeat alone decides.
"""

from pathlib import Path

from docllm.producer.bus.embedded.life_lock import LifeLock, forget, is_dead


class LifeLocks:
    """The lock files of the agents that share a data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: list[LifeLock] = []

    def hold(self, agent_id: int) -> None:
        """Hold the lock of an incarnation of this process until the process ends."""
        self._held.append(LifeLock(self._folder, member=str(agent_id)))

    def has_process_ended(self, agent_id: int) -> bool:
        """Return whether the process of an incarnation is gone.

        Returns False while the incarnation has no file, because its row is written first.
        """
        return (self._folder / f"{agent_id}.lock").exists() and is_dead(self._folder, str(agent_id))

    def remove(self, agent_id: int) -> None:
        """Remove the lock file of an incarnation that is gone."""
        forget(self._folder, str(agent_id))

    def close(self) -> None:
        """Release the locks of this process."""
        while self._held:
            self._held.pop().release()

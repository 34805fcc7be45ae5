"""Opens, builds, registers and closes one agent or reaper: it chooses adapters and owns threads.

`agent.cli` calls it; everything below gets what it needs as arguments.
"""

from agent.app.lifecycle import describe, registered_agent, registered_reaper

__all__ = ["describe", "registered_agent", "registered_reaper"]

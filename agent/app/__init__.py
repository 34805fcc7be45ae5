"""Opens, builds, registers and closes one agent or reaper: it chooses adapters and owns threads.

`agent.cli` calls it; everything below gets what it needs as arguments.
"""

from agent.app.lifecycle import built, describe, reaper

__all__ = ["built", "describe", "reaper"]

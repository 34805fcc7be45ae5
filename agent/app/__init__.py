"""Opens, builds, registers and closes one agent or repair agent.

It chooses adapters and owns threads.

`docllm.agent.cli` calls it; everything below gets what it needs as arguments.
"""

from docllm.agent.app.lifecycle import describe, registered_agent, registered_repair_agent

__all__ = ["describe", "registered_agent", "registered_repair_agent"]

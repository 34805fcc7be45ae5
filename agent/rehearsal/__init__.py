"""The rehearsal LLM: an OpenAI-compatible server without a model, for demos, tests and benchmarks.

Nothing of the agent may import it; it is a program of its own, and knows nothing of Kafka or the ledger.
"""

from agent.rehearsal.command import run

__all__ = ["run"]

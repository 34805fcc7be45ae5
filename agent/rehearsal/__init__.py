"""The rehearsal LLM: an OpenAI-compatible server without a model.

It is for demos, tests and benchmarks. It is a program of its own, which knows nothing of Kafka or
the ledger, and nothing of the agent may import it.
"""

from agent.rehearsal.command import run

__all__ = ["run"]

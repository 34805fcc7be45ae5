"""The rehearsal LLM: an OpenAI-compatible server without a model, for demos and tests.

It is a program of its own that knows neither Kafka nor the ledger. Of the agent, only
`docllm.agent.cli` may import it.
"""

from docllm.agent.llm.rehearsal.command import serve

__all__ = ["serve"]

"""The HTTP client of the LLM: one POST, and each of its failures is a value.

It decides nothing about a task; `docllm.agent.judge` does. `rehearsal` is the server that stands in
for an LLM.
"""

"""The HTTP client of the LLM: one POST, whose every failure is a value.

It decides nothing; `agent.judge` does.
"""

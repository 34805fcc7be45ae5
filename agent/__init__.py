"""The agent: takes tasks from topics, calls the LLM, and settles the outcomes.

It imports producer and schemas, and nothing imports it.
"""

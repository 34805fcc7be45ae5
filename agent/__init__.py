"""The agent: takes tasks from topics, calls the LLM, settles. Imports producer and schemas."""

"""A task's result as it is stored: its encodings, its answer, and pointers to outputs.

Nothing here judges a reply; `docllm.agent.judge` does.
"""

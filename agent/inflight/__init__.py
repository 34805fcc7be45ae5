"""The agent's memory of records between poll and commit, and its limits.

Nothing here reaches a server, reads a clock, or decides about tasks; `docllm.agent.dispatch`
decides.
"""

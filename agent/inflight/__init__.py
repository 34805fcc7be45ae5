"""The agent's memory of the records between poll and commit. Pure: no server, no clock of its own.

It decides nothing about a task; `agent.dispatch` does.
"""

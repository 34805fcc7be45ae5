"""The agent's memory of records between poll and commit.

Pure: it has no server and no clock of its own. It decides nothing about tasks; `agent.dispatch`
does.
"""

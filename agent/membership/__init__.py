"""The agent's place in its group: its lease, kept by heartbeats, and its lock file.

It judges no other agent; `agent.maintenance` does.
"""

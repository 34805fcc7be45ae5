"""The agent's place in its group: its lease, kept by heartbeats, and its lock file.

It declares no other agent lost; `docllm.agent.maintenance` does.
"""

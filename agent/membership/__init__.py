"""The agent's place in its group: its lease, kept by heartbeats, and its lock file.

Other agents' leases are judged in `agent.maintenance`.
"""

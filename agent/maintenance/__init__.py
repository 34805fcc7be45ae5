"""The duties that an agent performs for its whole group, in the background.

They repair and tidy through the ledger. They never settle a task for an agent that is alive.
"""

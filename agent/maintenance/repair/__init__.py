"""Duties that put right what an agent or a command left undone.

Each finds its work in the ledger, so any agent of the group may do it.
"""

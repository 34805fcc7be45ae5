"""Duties that keep the ledger and the topics small.

They touch only what is finished, and one agent at a time works on rows that all of them count.
"""

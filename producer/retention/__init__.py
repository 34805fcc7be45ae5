"""What becomes of batches that are done: purge, erasure, and the end of their dead letters.

It works in small steps beside running agents. SQL is in `producer/ledger`.
"""

"""What becomes of batches that are done: archive, purge, erasure, and the end of dead letters.

It works in small steps beside running agents. SQL is in `producer/ledger`.
"""

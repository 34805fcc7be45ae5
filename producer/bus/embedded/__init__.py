"""The embedded bus: topics, partitions, offsets and consumer groups in one SQLite file.

It serves the agents of one machine and imports nothing of the ledger.
"""

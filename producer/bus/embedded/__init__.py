"""The embedded bus: topics, partitions, offsets and consumer groups in one SQLite file.

For the agents of one machine; it imports nothing of the ledger.
"""

"""Archives, purges and erases finished batches, and trims dead letters.

All of it runs in small steps while agents run. SQL is in `producer/ledger`.
"""

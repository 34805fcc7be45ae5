"""What `load` reads: lines, documents, rejects. It asks no server.

What becomes of a line in the ledger is in `producer.loading`.
"""

"""From lines and foreign records to tasks in the ledger.

It decides what is accepted; the statements are in `producer.ledger`.
"""

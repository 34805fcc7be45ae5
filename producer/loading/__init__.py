"""Turns lines and foreign records into tasks of the ledger, and decides what is accepted.

The statements are in `docllm.producer.ledger`.
"""

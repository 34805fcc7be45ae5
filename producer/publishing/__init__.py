"""Sends publish orders: builds records from the ledger and hands them to the publisher.

It places no orders itself.
"""

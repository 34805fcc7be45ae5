"""Sends publish orders: builds the records from the ledger and hands them to the publisher.

It orders nothing itself.
"""

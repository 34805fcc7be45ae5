"""Writes and reads results outside the ledger: in folders and in object stores.

It takes URIs and bytes. Who may write where, and what an object holds, is decided elsewhere.
"""

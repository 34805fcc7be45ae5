"""Writes and reads results outside the ledger: in folders and in object stores.

It handles only URIs and bytes. Permissions and the objects' content are decided elsewhere.
"""

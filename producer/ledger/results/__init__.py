"""The results of tasks, read in pages and turned into the lines of an export.

It changes nothing in the ledger, and it opens no file: its caller passes the one to write to.
"""

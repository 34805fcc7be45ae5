"""The migrations: one file for each revision, in order.

A file that has landed is not changed; a new revision adds to it.
"""

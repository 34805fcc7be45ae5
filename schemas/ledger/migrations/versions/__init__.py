"""The migrations, a file for each revision, in order.

A file that has landed is never changed; a new revision adds to it.
"""

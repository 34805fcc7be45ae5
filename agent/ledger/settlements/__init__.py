"""The SQL that writes how attempts ended, with all that follows in the same transaction.

It is written under the claim's owner, and whether a batch is held back is decided in `guards`.
"""

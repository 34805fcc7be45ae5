"""Limits that a command's help shows.

This module imports no library, so that `--help` is fast.
"""

MAX_REJECTS = 10_000  # more rejects usually have one common cause
CAP = 3  # replays of one task or record

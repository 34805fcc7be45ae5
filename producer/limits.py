"""Limits that a command's help shows. Its module names no library, so that the help is fast."""

MAX_REJECTS = 10_000  # more rejects have one cause, which nobody repairs line by line
CAP = 3  # replays of one task or record

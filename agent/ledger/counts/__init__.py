"""What has happened, as counts: attempts of releases, calls of the day, and their roll-ups.

Counts are never the truth about a task, and settles write theirs in their own transaction.
"""

"""The SQL that asks about tasks, claims them, and makes waiting ones due.

Nothing here writes how an attempt ended.
"""

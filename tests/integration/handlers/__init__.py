"""Handlers of task types, their hooks, follow-ups, locks and processes."""

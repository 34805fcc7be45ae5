"""What every program needs to run: clock, executors, crash points, start and end.

Nothing here knows a task.
"""

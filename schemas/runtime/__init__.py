"""What every program needs to run: clock, executors, crash points, start and end.

It knows no task.
"""

"""The agent as a process: child processes, signals, exits, clock jumps, the data folder.

Nothing here knows a task.
"""

"""The agent as a process: children, signals, exit, clock jumps, the data folder.

Nothing here knows what a task is.
"""

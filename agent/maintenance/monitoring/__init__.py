"""What an agent notices of itself: its report, and a task that blocks its event loop.

Nothing here changes a task.
"""

"""Text and files as people read and write them: times, columns, safe output.

Nothing here knows a task or a server.
"""

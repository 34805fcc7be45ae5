"""Text and files as people read and write them: times, columns, safe output.

It knows no task and no server.
"""

"""Every SQL statement that both programs use, or that screens need.

No topics, no files, no terminal.
"""

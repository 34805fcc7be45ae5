"""The SQL statements that both programs use, and those of screens.

There are no topics, no files and no terminal here.
"""

"""The SQL statements that both programs use, and those of commands and screens.

There are no topics, no files and no terminal here. The modules of this folder write tasks, orders
and counts. Its subfolders read for screens and exports, select dead letters, and archive and purge.
"""

"""The SQL statements that both programs use, and those of commands and screens.

There are no topics, no files and no terminal here. The modules beside the rooms write tasks, orders
and counts; each room has one subject more.
"""

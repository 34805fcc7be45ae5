"""The SQL that archives, purges and erases tasks that are final.

Nothing here touches an open task, except that `erase` cancels it first.
"""

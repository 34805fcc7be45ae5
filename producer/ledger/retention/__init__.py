"""The SQL that archives, adopts, purges and erases what is kept of tasks that are final.

Nothing here touches an open task, except that `erase` cancels it first.
"""

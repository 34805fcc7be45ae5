"""Rights that end by themselves: agents' leases, locks of resources, and turns.

Only the database's clock says whether a right has ended, and nothing here changes a task.
"""

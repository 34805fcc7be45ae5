"""Background duties that an agent repeats for its whole group: repairs and cleanup.

There is no SQL here, and no duty claims tasks or settles tasks of living agents.
"""

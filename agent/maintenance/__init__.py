"""Duties that an agent repeats in the background for its whole group: they repair and tidy.

No statement stands here, and no duty claims a task or settles one for an agent that is alive.
"""

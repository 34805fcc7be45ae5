"""What attempts, claims, calls and settles take: traces, and ports that trace or measure.

Nothing here changes what passes through it.
"""

"""Python's collector of cyclic garbage, told to look rarely. For programs that handle many tasks, whose objects die by their counts.

At Python's own threshold of 700 objects it takes a tenth of such a program's CPU, most of it to look again at what stays.
"""

import gc

COLLECT_AT = 20_000  # objects made and not yet gone


def calm() -> None:
    """Leave out what exists now, which stays, and look for cycles in the rest 30 times less often. Call it once, after the start."""
    gc.freeze()
    gc.set_threshold(COLLECT_AT)

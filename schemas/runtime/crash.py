"""Names the points between two durable effects, so that a test can kill a program at each.

`reach` does nothing unless the program was started with DOCLLM_TEST_CRASH=POINT or POINT:N. Then
the program kills itself (SIGKILL) when it comes to that point for the N-th time.

A point is written as a literal, because the list of all points is read from the source. It is
placed where one effect is durable and the next effect of the same duty is not. Only compaction has
one inside its transaction, which proves that no half of it stays.
"""

import os
import signal
from collections.abc import Callable
from itertools import count

VARIABLE = "DOCLLM_TEST_CRASH"


def armed(order: str) -> Callable[[str], None]:
    """Return a `reach` that kills the process as `order` says. Any thread may call it.

    `order` is POINT, or POINT:N for the N-th time.
    """
    armed_point, _, number = order.partition(":")
    passes_left = count(int(number or 1) - 1, -1)

    def reach(point: str) -> None:
        if point == armed_point and next(passes_left) == 0:
            os.write(2, f"killed at {order}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    return reach


def _nothing(_point: str) -> None:
    pass


reach: Callable[[str], None] = armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else _nothing

"""Names the points between two durable effects, so that a test can kill a program at each.

`reach` does nothing unless the program was started with DOCLLM_TEST_CRASH=POINT or POINT:N. Then
the program kills itself (SIGKILL) when it comes to that point for the N-th time.

Each call of `reach` names its point as a literal, because tests read the list of points from the
source. A point stands after one durable effect and before the next effect of the same duty. Only
compaction has a point inside its transaction, to prove that a partial transaction leaves nothing
behind.
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

"""Detects a backward clock jump of the time of day.

librdkafka measures its waits by the time of day, so each wait in progress lasts longer by the size
of the jump.
"""

from docllm.schemas.runtime.clock import Clock

MIN_S = 60.0  # after a smaller jump, the client's longer wait is accepted
CHECK_EVERY_S = 1.0


async def wait_for_backward_jump(clock: Clock) -> float:
    """Wait for a backward clock jump of a minute or more; return its size in seconds."""
    ahead_s = clock.utc_s() - clock.now_s()
    while True:
        await clock.sleep(CHECK_EVERY_S)
        before_s, ahead_s = ahead_s, clock.utc_s() - clock.now_s()
        if before_s - ahead_s >= MIN_S:
            return before_s - ahead_s

"""Notices a time of day that is set back. librdkafka measures its waits by it: each that is under way then lasts as much longer."""

from schemas.clock import Clock

LEAST_S = 60.0  # less is waited for
LOOK_S = 1.0


async def set_back(clock: Clock) -> float:
    """Return by how many seconds the time of day was set back in one step, once it was by a minute or more."""
    ahead_s = clock.utc_s() - clock.now_s()
    while True:
        await clock.sleep(LOOK_S)
        before_s, ahead_s = ahead_s, clock.utc_s() - clock.now_s()
        if before_s - ahead_s >= LEAST_S:
            return before_s - ahead_s

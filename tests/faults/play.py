"""Plays a plan on a site, each fault in a thread of its own.

Faults that need the same thing do not overlap.
"""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from tests.faults.fault import Fault, NobodyError
from tests.faults.plan import KINDS, Planned
from tests.faults.site import Site

AT_ONCE = 12
TRIES = 3


class Needs:
    """The things that present faults have taken."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, needs: frozenset[str]) -> Iterator[None]:
        """Wait until all of them are free, and take them."""
        with self._changed:
            self._changed.wait_for(lambda: not needs & self._taken)
            self._taken |= needs
        try:
            yield
        finally:
            with self._changed:
                self._taken -= needs
                self._changed.notify_all()


def play(site: Site, plan: Sequence[Planned]) -> None:
    """Run every planned fault; return when all are over."""
    needs, began_s = Needs(), time.monotonic()
    under_way: list[Future[None]] = []
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fault") as pool:
        for planned in plan:
            time.sleep(max(0.0, began_s + planned.at_s - time.monotonic()))
            under_way.append(pool.submit(_strike, site, planned, needs))
        wait(under_way)


def _strike(site: Site, planned: Planned, needs: Needs) -> None:
    """Run a fault, and again if it met nobody."""
    for times_left in range(TRIES - 1, -1, -1):
        if _strike_once(site, planned, needs, times_left):
            return


def _strike_once(site: Site, planned: Planned, needs: Needs, times_left: int) -> bool:
    """Return whether the fault is over: it met somebody, or has no time left."""
    kind = KINDS[planned.kind]
    # Not a secret.
    fault = Fault(
        planned.number,
        kind,
        site,
        planned.seat,
        planned.hold_s,
        random.Random(planned.seed),  # noqa: S311
    )
    error = ""
    with needs.taken(frozenset(need.format(seat=planned.seat) for need in kind.needs)):
        fault.begin("")
        try:
            kind.act(fault)
        except NobodyError as nobody:
            error = str(nobody)
        # Whatever it is, the fault did not happen as planned.
        except Exception as wrong:  # noqa: BLE001
            error = f"{type(wrong).__name__}: {wrong}"
    again = not fault.bit and times_left > 0
    site.log.note(
        "fault",
        number=fault.number,
        kind=kind.name,
        cost=kind.cost.value,
        target=fault.target,
        seats=fault.seats,
        start_s=fault.begun_s,
        end_s=time.time(),
        bit=fault.bit and not error,
        again=again,
        error=error,
        evidence=fault.evidence,
    )
    return not again

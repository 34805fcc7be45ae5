"""Planted bugs: each breaks one promise on purpose, to show that its checker works.

They exist in tests only.
"""

from tests.simulation.bugs import bus, failures, leases, ledger, limits, loop
from tests.simulation.bugs.bug import Bug

BUGS: dict[str, Bug] = (
    loop.BUGS | ledger.BUGS | leases.BUGS | bus.BUGS | failures.BUGS | limits.BUGS
)

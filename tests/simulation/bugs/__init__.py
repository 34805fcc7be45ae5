"""Planted bugs: each breaks one promise on purpose, to show that its checker works.

They exist in tests only. `tests/README.md` says how this list differs from that of the contract
suite, and how to add a bug.
"""

from tests.simulation.bugs import (
    bus,
    counts,
    failures,
    fallback,
    hooks,
    leases,
    ledger,
    limits,
    locks,
    outputs,
    quotas,
    records,
    turns,
    waits,
)
from tests.simulation.bugs.bug import Bug

BUGS: dict[str, Bug] = (
    records.BUGS
    | ledger.BUGS
    | leases.BUGS
    | bus.BUGS
    | failures.BUGS
    | limits.BUGS
    | counts.BUGS
    | quotas.BUGS
    | fallback.BUGS
    | locks.BUGS
    | turns.BUGS
    | hooks.BUGS
    | outputs.BUGS
    | waits.BUGS
)

"""What an account was granted in the last minute, for servers that count each minute strictly.

Pure. A bucket that fills with time lets one call begin as soon as it is positive, so in some minute
the calls exceed the limit by the last one. Many servers accept that, but a server that adds up the
last 60 seconds refuses the call. A small call therefore waits until the minute has room for it. A
larger call waits like this only in the hour after a refusal of an account whose minute was too
full: elsewhere this wait would waste the room that larger calls leave.

Room is kept for the agent whose call waits, so that smaller calls of others do not take it.
"""

from dataclasses import dataclass

from docllm.agent.quota.grants import RATES, Charge, charged
from docllm.schemas.settings.quota import QuotaLimits

SLOT_MS = 500
# How many slots before the present one count. A grant may be used a second after it was given, so
# one more second counts where minutes are strict.
SLOTS, STRICT_SLOTS = 120, 122
# A grant that was not used is given back up to two seconds later. It must not be missing from the
# minute for longer than it was in it.
REFUND_SLOTS = 4
SMALL = 0.02  # of a limit: what a larger call needs as room at least
TOO_FULL = 1.005  # of a limit
STRICT_MS = 3_600_000  # how long an account is strict after such a refusal
KEPT_MS = 1500  # since the agent for which room is kept asked last


@dataclass(frozen=True, slots=True)
class _KeptRoom:
    agent: str
    charge: Charge
    asked_ms: float


class RecentMinute:
    """The charges of the last minute, by half seconds, and the room kept for a waiting call."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[str, int]] = {}
        self._limits: dict[str, float] = {}
        self._slot = 0
        self._now_ms = self._clock_ms = 0.0
        self._strict_until_ms = 0.0
        self._kept: _KeptRoom | None = None

    def begin(self, now_ms: float, clock_ms: float, limits: QuotaLimits) -> None:
        """Begin an exchange with these limits; `clock_ms` is the account's own clock."""
        self._now_ms, self._clock_ms = now_ms, clock_ms
        self._limits = {name: limits.given[name] for name in RATES if name in limits.given}
        self._slot = int(now_ms // SLOT_MS)
        # Slots of the future are there after the clock was set back.
        self._slots = {
            slot: charges
            for slot, charges in self._slots.items()
            if self._slot - STRICT_SLOTS <= slot <= self._slot
        }
        if self._strict_until_ms > now_ms + STRICT_MS:
            self._strict_until_ms = 0.0
        if self._kept is not None and clock_ms - self._kept.asked_ms > KEPT_MS:
            self._kept = None

    def add(self, charge: Charge) -> None:
        """Count a call that is granted."""
        self._count(self._slot, charge, 1)

    def give_back(self, refund: Charge) -> None:
        """Count what calls did not need; negative for what they cost beyond their grants."""
        self._count(self._slot - (REFUND_SLOTS if self._is_strict else 0), refund, -1)

    def _count(self, slot: int, cost: Charge, sign: int) -> None:
        charges = self._slots.setdefault(slot, dict.fromkeys(RATES, 0))
        for name in RATES:
            charges[name] += sign * charged(name, cost)

    def _total(self, name: str) -> int:
        oldest = self._slot - (STRICT_SLOTS if self._is_strict else SLOTS)
        return sum(charges[name] for slot, charges in self._slots.items() if slot >= oldest)

    @property
    def _is_strict(self) -> bool:
        return self._now_ms < self._strict_until_ms

    def note_refused(self) -> None:
        """Note that the provider refused calls: it counts minutes strictly if this one is full."""
        if any(self._total(name) > TOO_FULL * limit for name, limit in self._limits.items()):
            self._strict_until_ms = self._now_ms + STRICT_MS

    def lacks(self, agent: str, charge: Charge) -> str:
        """Return the limit whose minute has no room for a call, or "".

        A call that is larger than the limit begins once the minute is empty.
        """
        for name, limit in self._limits.items():
            total, size = self._total(name), self._size(name, charge)
            others = 0.0 if self._is_of(agent) else self.kept(name)
            if total > 0 and total + size + others > limit:
                return name
        return ""

    def _size(self, name: str, charge: Charge) -> float:
        size = charged(name, charge)
        return size if self._is_strict else min(size, max(1.0, SMALL * self._limits[name]))

    # ---- the room that is kept for a waiting call

    def keep_room(self, agent: str, charge: Charge) -> None:
        """Keep room for an agent's call, if none is kept for another agent."""
        if self._kept is None or self._is_of(agent):
            self._kept = _KeptRoom(agent, charge, self._clock_ms)

    def release_room(self, agent: str) -> None:
        """Keep no room for an agent any longer."""
        if self._is_of(agent):
            self._kept = None

    def kept(self, name: str) -> float:
        """Return how much of a limit is kept for a waiting call."""
        return 0.0 if self._kept is None else self._size(name, self._kept.charge)

    def _is_of(self, agent: str) -> bool:
        return self._kept is not None and self._kept.agent == agent

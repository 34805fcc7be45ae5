"""The grants of one account that one agent may use now. Pure."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from docllm.agent.quota.grants import RATES, Charge, WaitingCall, charged
from docllm.schemas.settings.quota import QuotaLimits

# An estimate may exceed its grant by this much at the call; the difference becomes a debt.
SLACK, SLACK_TOKENS = 1.125, 16
TOKEN_RATES = RATES[1:]


@dataclass(frozen=True, slots=True)
class Grant:
    """Allows one call of about this charge, from `from_s` until `until_s` by the agent's clock."""

    until_s: float
    charge: Charge
    from_s: float = 0.0


class GrantsInHand:
    """The grants, the oldest first."""

    def __init__(self) -> None:
        self._grants: deque[Grant] = deque()

    def __len__(self) -> int:
        return len(self._grants)

    def add(self, grant: Grant) -> None:
        """Add a grant."""
        self._grants.append(grant)

    def take(self, charge: Charge, limits: QuotaLimits) -> list[Grant]:
        """Take the grants for a call and return them; none if they do not cover it.

        That is the grant that was asked for such a call, or else the smallest that covers it, or
        else the oldest ones that cover it together.
        """
        names = _token_limits(limits)
        grant = self._covering(charge, names)
        used = self._together(charge, names) if grant is None else [grant]
        for one in used:
            self._grants.remove(one)
        return used

    def drop_old(self, now_s: float) -> Iterator[Charge]:
        """Drop the grants whose time has passed, and yield their charges."""
        while self._grants and self._grants[0].until_s <= now_s:
            yield self._grants.popleft().charge

    def uncovered(self, calls: Iterable[WaitingCall], limits: QuotaLimits) -> Iterator[WaitingCall]:
        """Yield the calls that none of the grants covers; each grant covers one call."""
        names = _token_limits(limits)
        granted = [grant.charge for grant in self._grants]
        for call in calls:
            fitting = (charge for charge in granted if _covers(charge, call.charge, names))
            fit = next(fitting, None)
            if fit is None:
                yield call
            else:
                granted.remove(fit)

    def _covering(self, charge: Charge, names: Sequence[str]) -> Grant | None:
        smallest: Grant | None = None
        for grant in self._grants:
            if not _covers(grant.charge, charge, names):
                continue
            if _covers(charge, grant.charge, names):
                return grant
            if smallest is None or not _covers(grant.charge, smallest.charge, names):
                smallest = grant
        return smallest

    def _together(self, charge: Charge, names: Sequence[str]) -> list[Grant]:
        used: list[Grant] = []
        granted = Charge(tokens_in=0, tokens_out=0)
        for grant in self._grants:
            used.append(grant)
            granted = Charge(
                tokens_in=granted.tokens_in + grant.charge.tokens_in,
                tokens_out=granted.tokens_out + grant.charge.tokens_out,
            )
            if _covers(granted, charge, names):
                return used
        return []


@lru_cache
def _token_limits(limits: QuotaLimits) -> tuple[str, ...]:
    """Return the names of those limits that count tokens."""
    return tuple(name for name in TOKEN_RATES if name in limits.given)


def _covers(granted: Charge, charge: Charge, names: Sequence[str]) -> bool:
    """Return whether granted tokens are enough for a charge, by these limits."""
    return all(
        charged(name, charge) <= charged(name, granted) * SLACK + SLACK_TOKENS for name in names
    )

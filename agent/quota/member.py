"""One agent's side of one account: its grants, running calls and refunds.

Pure. A grant is used within about a second, or given back. So a frozen agent makes no calls with
old grants when it wakes, and the provider receives in a minute what the ledger granted in that
minute.
"""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from agent.quota.ledger import (
    MOST_ASKS,
    Ask,
    Charge,
    DayCount,
    QuotaAnswer,
    QuotaRequest,
    Refund,
)
from schemas.settings.quota import QuotaLimits

# Lifetime of a grant, from the moment at which it was asked for.
GRANT_LIVES_S = 1.25
OWN_LIVES_S = 3.0  # grants of the share within this time are also reported to the ledger
SEATS_LIVE_S = 3.0  # less than the time after which the ledger gives them to others
# An estimate may exceed its grant by this much at the call; the difference becomes a debt.
SLACK, SLACK_TOKENS = 1.125, 16
_RATES = {"rpm", "tpm", "itpm", "otpm", "rpd"}


@dataclass(frozen=True, slots=True)
class _Grant:
    until_s: float
    charge: Charge


class QuotaMember:
    """What one agent may use of one account now."""

    def __init__(self, *, key: str, limits: QuotaLimits, sequences: Iterator[int]) -> None:
        self.key = key
        self.limits = limits
        self._sequences = sequences
        self.running = 0
        self.scale = 1.0
        self.agents = 1
        self.binding = ""
        self.used_today: DayCount | None = None
        self._told_today: DayCount | None = None  # by the ledger's last answer
        self._asks: dict[Hashable, tuple[Ask, ...]] = {}
        self._grants: deque[_Grant] = deque()
        self._own: deque[_Grant] = deque()  # recent grants by the share
        self._seats, self._seats_until_s = 0, 0.0
        self._paused_until_s = 0.0
        self._requests = self._tokens_in = self._tokens_out = 0  # to be given back
        self._ended = self._ended_before = 0  # calls, since the last two requests
        self._refused = 0
        self._retry_after_s = 0.0
        self._remaining: float | None = None
        self._told = True  # whether the ledger knows that this agent does nothing

    # ---- towards admission

    @property
    def _rated(self) -> bool:
        return bool(_RATES & self.limits.given.keys())

    def wants(self, user: Hashable, asks: Sequence[Ask]) -> None:
        """Replace the tasks of one user of the account that are ready, the next first."""
        if asks:
            self._asks[user] = tuple(asks[:MOST_ASKS])
        else:
            self._asks.pop(user, None)

    def room(self, now_s: float) -> int:
        """Return how many calls may begin now, if none costs more than it was granted."""
        self._give_back_old(now_s)
        if now_s < self._paused_until_s:
            return 0
        free = self._free_seats(now_s)
        if not self._rated:
            return MOST_ASKS if free is None else free
        return len(self._grants) if free is None else min(len(self._grants), free)

    def take(self, charge: Charge, now_s: float) -> bool:
        """Begin a call with this estimated charge; return whether it may begin now."""
        if self.room(now_s) <= 0:
            return False
        if self._rated:
            used = self._fitting(charge)
            if not used:
                return False
            for grant in used:
                self._grants.remove(grant)
                self._give_back(grant.charge, requests=1)
            self._give_back(charge, requests=1, sign=-1)
        self.running += 1
        return True

    def ended(
        self,
        granted: Charge,
        charged: Charge | None,
        *,
        refused: bool = False,
        retry_after_s: float = 0.0,
        remaining: float | None = None,
    ) -> None:
        """Note the end of a call, and what it was charged; None if no call was made.

        `remaining` is the lowest share of a limit that its answer said is left.
        """
        self.running -= 1
        self._ended += 1
        self._give_back(granted, requests=int(charged is None))
        if charged is not None:
            self._give_back(charged, sign=-1)
        if refused:
            self._refused += 1
            self._retry_after_s = max(self._retry_after_s, retry_after_s)
        if remaining is not None:
            known = self._remaining
            self._remaining = remaining if known is None else min(known, remaining)

    def paused_s(self, now_s: float) -> float:
        """Return how long nothing may begin, because the provider refused calls."""
        return max(0.0, self._paused_until_s - now_s)

    def _free_seats(self, now_s: float) -> int | None:
        if self.limits.in_flight is None:
            return None
        return max(0, self._seats - self.running) if now_s < self._seats_until_s else 0

    def _fitting(self, charge: Charge) -> list[_Grant]:
        """Return the grants for a call: one that covers it, or the oldest that do so together."""
        for grant in self._grants:
            if self._covers(grant.charge.tokens_in, grant.charge.tokens_out, charge):
                return [grant]
        used: list[_Grant] = []
        tokens_in = tokens_out = 0
        for grant in self._grants:
            used.append(grant)
            tokens_in += grant.charge.tokens_in
            tokens_out += grant.charge.tokens_out
            if self._covers(tokens_in, tokens_out, charge):
                return used
        return []

    def _covers(self, tokens_in: int, tokens_out: int, charge: Charge) -> bool:
        """Return whether a charge is within granted tokens, where tokens are limited."""
        pairs = {
            "tpm": (charge.tokens_in + charge.tokens_out, tokens_in + tokens_out),
            "itpm": (charge.tokens_in, tokens_in),
            "otpm": (charge.tokens_out, tokens_out),
        }
        return all(
            needed <= given * SLACK + SLACK_TOKENS
            for name, (needed, given) in pairs.items()
            if name in self.limits.given
        )

    # ---- towards the ledger

    def worth_telling(self, now_s: float) -> bool:
        """Return whether there is anything to ask or to tell."""
        self._give_back_old(now_s)
        return self._busy or not self._told

    @property
    def _busy(self) -> bool:
        owes = self._requests or self._tokens_in or self._tokens_out or self._refused
        return bool(self._asks or self._grants or self.running or owes)

    def draw(self, now_s: float) -> QuotaRequest:
        """Return the next request.

        Each refund is in one request only.
        """
        self._give_back_old(now_s)
        request = QuotaRequest(
            key=self.key,
            limits=self.limits,
            sequence=next(self._sequences),
            running=self.running,
            in_hand=len(self._grants),
            ends=self._ended + self._ended_before,
            asks=tuple(self._uncovered()),
            refund=Refund(
                requests=self._requests, tokens_in=self._tokens_in, tokens_out=self._tokens_out
            ),
            refused=self._refused,
            retry_after_s=self._retry_after_s,
            remaining=self._remaining,
            used_today=self.used_today,
            told_today=self._told_today,
        )
        self._requests = self._tokens_in = self._tokens_out = 0
        self._refused, self._retry_after_s, self._remaining = 0, 0.0, None
        self._ended, self._ended_before = 0, self._ended
        self._told = not self._busy
        return request

    def hear(
        self,
        request: QuotaRequest,
        answer: QuotaAnswer,
        sent_s: float,
        now_s: float,
        *,
        by_share: bool = False,
    ) -> None:
        """Take the answer to a request that was first sent at `sent_s`.

        Recent grants of the share are reported to the ledger, which may have granted the same
        amounts to other agents. Older grants are not: those amounts would have gone unused.
        """
        for ask, granted in zip(request.asks, answer.granted, strict=True):
            if granted and self._rated:
                self._grants.append(_Grant(sent_s + GRANT_LIVES_S, ask.cost))
                if by_share:
                    self._own.append(_Grant(now_s + OWN_LIVES_S, ask.cost))
        while self._own and (not by_share or self._own[0].until_s <= now_s):
            own = self._own.popleft()
            if own.until_s > now_s:
                self._give_back(own.charge, requests=1, sign=-1)
        self._seats, self._seats_until_s = answer.seats or 0, sent_s + SEATS_LIVE_S
        self._paused_until_s = now_s + answer.paused_s
        self.scale, self.agents, self.binding = answer.scale, answer.agents, answer.binding
        self._told_today = answer.today or self._told_today
        self._give_back_old(now_s)

    def _uncovered(self) -> Iterator[Ask]:
        """Yield the asks that no grant in hand covers, taking users in turn."""
        turns = chain.from_iterable(zip_longest(*self._asks.values()))
        asks = [ask for ask in turns if ask is not None][: MOST_ASKS + len(self._grants)]
        free = [grant.charge for grant in self._grants]
        count = 0
        for ask in asks:
            fits = (one for one in free if self._covers(one.tokens_in, one.tokens_out, ask.cost))
            fit = next(fits, None)
            if fit is not None:
                free.remove(fit)
            elif count < MOST_ASKS:
                count += 1
                yield ask

    def _give_back_old(self, now_s: float) -> None:
        while self._grants and self._grants[0].until_s <= now_s:
            self._give_back(self._grants.popleft().charge, requests=1)

    def _give_back(self, charge: Charge, requests: int = 0, sign: int = 1) -> None:
        self._requests += sign * requests
        self._tokens_in += sign * charge.tokens_in
        self._tokens_out += sign * charge.tokens_out

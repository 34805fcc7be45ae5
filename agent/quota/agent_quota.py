"""One agent's side of one account: its grants, running calls and refunds.

Pure. A grant is used within about a second, or given back. So a frozen agent makes no calls with
old grants when it wakes, and the provider receives in a minute what the store granted in that
minute.
"""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain, islice, zip_longest

from docllm.agent.quota.grants import (
    MAX_WAITING,
    Charge,
    DayCount,
    QuotaAnswer,
    QuotaRequest,
    WaitingCall,
)
from docllm.agent.quota.grants_in_hand import TOKEN_RATES, Grant, GrantsInHand
from docllm.schemas.settings.quota import QuotaLimits

# Lifetime of a grant, from the moment at which it was asked for.
GRANT_LIVES_S = 1.25
OWN_LIVES_S = 3.0  # grants of the share within this time are also reported to the store
SEATS_LIVE_S = 3.0  # less than the time after which the store gives them to others
# A store that loses an account so often within so many seconds forgets it, until it has kept it for
# so long.
LOSSES, LOSSES_S = 3, 10.0
_RATES = {"rpm", "rpd", *TOKEN_RATES}


class AgentQuota:
    """The grants and seats of one account that one agent may use now.

    The account may be a tenant, a type or a resource: whatever has a limit that agents share.
    """

    def __init__(self, *, key: str, limits: QuotaLimits, sequences: Iterator[int]) -> None:
        self.key = key
        self.limits = limits
        self._sequences = sequences
        self.running = 0
        self.accepted_share = 1.0
        self.agents = 1
        self.binding = ""
        self._used_today: DayCount | None = None
        self._told_today: DayCount | None = None  # by the store
        self._waiting: dict[Hashable, tuple[WaitingCall, ...]] = {}
        self._grants = GrantsInHand()
        self._granted_by_share: deque[Grant] = deque()  # recently
        # Calls that the share granted and the store does not know of, and those of them that the
        # group's records of the day may leave out. They are reported once the store has answered.
        self._uncounted = self._unrecorded = 0
        self._is_store_back = False
        self._births_ms: deque[int] = deque(maxlen=LOSSES + 1)  # of the store's memory
        self._lost_at_s, self._forgets = 0.0, False
        self._seats, self._seats_until_s = 0, 0.0
        self._paused_until_s = 0.0
        self._requests = self._tokens_in = self._tokens_out = 0  # to be given back
        self._ended = self._ended_last_request = 0  # calls, since the last two requests
        self._refused = 0
        self._retry_after_s = 0.0
        self._remaining: float | None = None
        self._is_idle_known = True  # whether the grant store knows that this agent does nothing

    # ---- towards admission

    @property
    def _has_rates(self) -> bool:
        return bool(_RATES & self.limits.given.keys())

    def set_waiting(self, asker: Hashable, waiting: Sequence[WaitingCall]) -> None:
        """Replace the calls of one asker that wait for a grant, the next first.

        The asker that was set last takes the last turn: often only the first call is granted.
        """
        self._waiting.pop(asker, None)
        if waiting:
            self._waiting[asker] = tuple(waiting[:MAX_WAITING])

    def room(self, now_s: float) -> int:
        """Return how many calls may begin now, if none costs more than it was granted."""
        self._give_back_old(now_s)
        if now_s < self._paused_until_s:
            return 0
        free = self._free_seats(now_s)
        if not self._has_rates:
            return MAX_WAITING if free is None else free
        return len(self._grants) if free is None else min(len(self._grants), free)

    def begin_call(self, charge: Charge, now_s: float) -> float | None:
        """Begin a call with this estimated charge; return None if it has no grant.

        Otherwise return when it may be sent, by the agent's clock.
        """
        if self.room(now_s) <= 0:
            return None
        at_s = now_s
        if self._has_rates:
            used = self._grants.take(charge, self.limits)
            if not used:
                return None
            for grant in used:
                self._give_back(grant.charge)
                at_s = max(at_s, grant.from_s)
            self._give_back(charge, sign=-1)
        self.running += 1
        return at_s

    def note_ended(self, granted: Charge, charged: Charge | None) -> None:
        """Note the end of a call, and what it was charged; None if no call was made."""
        self.running -= 1
        self._ended += 1
        if self._has_rates:
            self._give_back(granted)
            if charged is not None:
                self._give_back(charged, sign=-1)

    def note_reply(
        self, *, refused: bool, retry_after_s: float = 0.0, remaining: float | None = None
    ) -> None:
        """Note what a reply says of the limits.

        `refused`: the provider refused the call because of a limit. `remaining` is the lowest share
        of a limit that is left.
        """
        if refused:
            self._refused += 1
            self._retry_after_s = max(self._retry_after_s, retry_after_s)
        if remaining is not None:
            before = self._remaining
            self._remaining = remaining if before is None else min(before, remaining)

    def paused_s(self, now_s: float) -> float:
        """Return how long nothing may begin, because the provider refused calls."""
        return max(0.0, self._paused_until_s - now_s)

    def _free_seats(self, now_s: float) -> int | None:
        if self.limits.in_flight is None:
            return None
        return max(0, self._seats - self.running) if now_s < self._seats_until_s else 0

    # ---- towards the grant store

    def has_news(self, now_s: float) -> bool:
        """Return whether there is anything to ask for or to report."""
        self._give_back_old(now_s)
        return self._is_busy or not self._is_idle_known

    @property
    def _is_busy(self) -> bool:
        owes = self._requests or self._tokens_in or self._tokens_out or self._refused
        busy = self._waiting or self._grants or self.running
        return bool(busy or owes or (self._uncounted and self._is_store_back))

    def next_request(self, now_s: float) -> QuotaRequest:
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
            ends=self._ended + self._ended_last_request,
            waiting=tuple(self._uncovered()),
            refund=Charge(
                requests=self._requests, tokens_in=self._tokens_in, tokens_out=self._tokens_out
            ),
            refused=self._refused,
            retry_after_s=self._retry_after_s,
            remaining=self._remaining,
            uncounted=self._uncounted if self._is_store_back else 0,
            unrecorded=self._unrecorded if self._is_store_back else 0,
            used_today=self._used_today,
            told_today=self._told_today,
        )
        # The store may lease the seats of calls that do not run now to others before this agent
        # hears of it, so no call takes them until the answer.
        self._seats = min(self._seats, self.running)
        self._requests = self._tokens_in = self._tokens_out = 0
        self._refused, self._retry_after_s, self._remaining = 0, 0.0, None
        if self._is_store_back:
            self._uncounted = self._unrecorded = 0
        self._ended, self._ended_last_request = 0, self._ended
        self._is_idle_known = not self._is_busy
        return request

    def probe(self) -> QuotaRequest:
        """Return a request that asks for nothing, and shows whether the store remembers."""
        return QuotaRequest(
            key=self.key,
            limits=self.limits,
            sequence=next(self._sequences),
            running=self.running,
            told_today=self._told_today,
        )

    def note_memory(self, answer: QuotaAnswer, now_s: float) -> None:
        """Note whether the store has lost the account since its last answer."""
        births_ms = self._births_ms
        if births_ms and births_ms[-1] == answer.began_ms:
            return
        if births_ms:
            self._lost_at_s = now_s
        births_ms.append(answer.began_ms)
        # By the store's clock, so that all agents find the same.
        often = len(births_ms) > LOSSES and births_ms[-1] - births_ms[1] < 1000 * LOSSES_S
        self._forgets = often or self.forgets(now_s)

    def forgets(self, now_s: float) -> bool:
        """Return whether the store loses the account so often that it is of no use."""
        return self._forgets and now_s - self._lost_at_s < LOSSES_S

    def apply_answer(
        self,
        request: QuotaRequest,
        answer: QuotaAnswer,
        sent_at_s: float,
        now_s: float,
        *,
        by_share: bool = False,
    ) -> None:
        """Apply the answer to a request that was first sent at `sent_at_s`.

        Recent grants of the share are reported to the store, which may have granted the same
        amounts to other agents. Older grants count for the day alone: what they took of the other
        limits would have gone unused.
        """
        if by_share and self.limits.rpd is not None:
            self._add_uncounted(sum(answer.granted) - request.refund.requests)
        self._is_store_back = not by_share
        start_s = now_s + answer.starts_in_s
        for call, granted in zip(request.waiting, answer.granted, strict=True):
            if granted and self._has_rates:
                self._grants.add(Grant(sent_at_s + GRANT_LIVES_S, call.charge, start_s))
                start_s += answer.starts_every_s
                if by_share:
                    self._granted_by_share.append(Grant(now_s + OWN_LIVES_S, call.charge))
        while self._granted_by_share and (
            not by_share or self._granted_by_share[0].until_s <= now_s
        ):
            grant = self._granted_by_share.popleft()
            if grant.until_s > now_s:
                self._give_back(grant.charge, sign=-1)
                self._add_uncounted(-1)
        self._seats, self._seats_until_s = answer.seats or 0, sent_at_s + SEATS_LIVE_S
        self._paused_until_s = now_s + answer.paused_s
        self.accepted_share, self.agents, self.binding = (
            answer.accepted_share,
            0 if by_share else answer.agents,
            answer.binding,
        )
        if not by_share:
            self._told_today = answer.today
        self._give_back_old(now_s)

    def note_used(self, today: DayCount) -> None:
        """Note how many calls the group's own records show for the day: those that have ended."""
        self._used_today = today
        self._unrecorded = min(self._unrecorded, self.running)

    def _add_uncounted(self, calls: int) -> None:
        self._uncounted = max(0, self._uncounted + calls)
        self._unrecorded = max(0, self._unrecorded + calls)

    def _uncovered(self) -> Iterator[WaitingCall]:
        """Return the waiting calls that no grant in hand covers, taking askers in turn."""
        in_turn = chain.from_iterable(zip_longest(*self._waiting.values()))
        most = MAX_WAITING + len(self._grants)
        calls = islice((call for call in in_turn if call is not None), most)
        return islice(self._grants.uncovered(calls, self.limits), MAX_WAITING)

    def _give_back_old(self, now_s: float) -> None:
        for charge in self._grants.drop_old(now_s):
            self._give_back(charge)

    def _give_back(self, charge: Charge, sign: int = 1) -> None:
        self._requests += sign * charge.requests
        self._tokens_in += sign * charge.tokens_in
        self._tokens_out += sign * charge.tokens_out

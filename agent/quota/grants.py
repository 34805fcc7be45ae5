"""The grant store, by which agents share one provider account's limits.

Pure. About twice a second, each agent reports the estimated cost of its next tasks, and the
differences between granted and actual cost of earlier calls. The store grants the first few of
these calls. It also leases seats: how many calls the agent may have at once until the next answer.
`quota.lua` has the rules of Redis, `share.py` those of an agent without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from docllm.schemas.settings.quota import QuotaLimits

MAX_WAITING = 64  # waiting calls in one request
RATES = ("rpm", "tpm", "itpm", "otpm")  # limits of a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The charge for one call: its tokens, and one request.

    A refund has the same form. It is negative if calls cost more than they were granted.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    requests: int = 1


NO_REFUND = Charge(requests=0)


class LimitKind(StrEnum):
    """What a limit is about.

    An `ACCOUNT` is named by a route. `SLOTS` are those of a type in one agent; all other limits are
    shared by the group's agents.
    """

    ACCOUNT = "account"
    TENANT = "tenant"
    TYPE = "type"
    SLOTS = "slots"
    NAMED = "limit"


LimitName = tuple[LimitKind, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCall:
    """A call that waits for a grant: what it will be charged, and the limits it waits for.

    `limits` are those beside the account's.
    """

    charge: Charge
    limits: tuple[LimitName, ...] = ()


def charged(limit: str, cost: Charge) -> int:
    """Return what a cost means for one limit of a rate."""
    if limit == "rpm":
        return cost.requests
    if limit == "itpm":
        return cost.tokens_in
    return cost.tokens_out + (cost.tokens_in if limit == "tpm" else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCount:
    """The number of calls of a day, from the agents' own records.

    `day` is in days since 1970, UTC.
    """

    day: int
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRequest:
    """One agent's request about one account.

    `key` is a digest of address, key and model. A request with a `sequence` that the store has
    answered before gets the same answer and changes nothing. `running` counts the agent's calls
    now, `in_hand` the grants that it has not used, and `ends` is how many calls will probably end
    before the next request: their seats can be reused immediately. `refund`, `refused` (calls) and
    `retry_after_s` (the longest) are about the time since the last answered request. `remaining` is
    the lowest share of a limit that the provider said is left. `uncounted` is how many calls the
    agent's share granted while the store was away, `unrecorded` those of them that `used_today` may
    leave out. For a store that has lost its memory, `used_today` counts ended calls of the whole
    group, and `told_today` is the count that the store answered last.
    """

    key: str
    limits: QuotaLimits
    sequence: int
    running: int = 0
    in_hand: int = 0
    ends: int = 0
    waiting: tuple[WaitingCall, ...] = ()
    refund: Charge = NO_REFUND
    refused: int = 0
    retry_after_s: float = 0.0
    remaining: float | None = None
    uncounted: int = 0
    unrecorded: int = 0
    used_today: DayCount | None = None
    told_today: DayCount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAnswer:
    """The store's answer: which calls are granted, and how many may run at once.

    `seats` is None without a limit of calls at once. Nothing is granted for `paused_s`.
    `accepted_share` is the part of the limits that the provider accepts at present. `agents` is the
    number of agents seen recently. `binding` is the limit for which a call was not granted, by its
    name in the settings, or "". `today` is how many calls the account's day has seen. `began_ms` is
    when the store's memory of the account began; another value shows that the memory was lost. The
    first granted call begins after `starts_in_s`, and each other one `starts_every_s` after the
    last.
    """

    granted: tuple[bool, ...]
    seats: int | None
    paused_s: float
    accepted_share: float
    agents: int
    binding: str
    today: DayCount | None = None
    began_ms: int = 0
    starts_in_s: float = 0.0
    starts_every_s: float = 0.0


class RedisAwayError(Exception):
    """Redis does not answer. The text says why, and contains no secret."""


class GrantStore(Protocol):
    """Where the agents that use one account meet. All times are by its own clock."""

    async def exchange(self, requests: Sequence[QuotaRequest]) -> list[QuotaAnswer]:
        """Send the requests, and return the store's answers in the same order.

        Raises RedisAwayError if that is not possible within two seconds.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...

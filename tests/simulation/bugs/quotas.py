"""Bugs of the provider's limits: agents take more of an account than they may."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from docllm.agent.inflight.partition_share import PartitionShare
from docllm.agent.quota import share
from docllm.agent.quota.agent_quota import AgentQuota
from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.agent.quota.grants import Charge, LimitKind, LimitName, QuotaAnswer, QuotaRequest
from docllm.agent.quota.limit import Permit
from docllm.agent.quota.quotas import Quotas
from tests.simulation.bugs.bug import Bug, patched, replaced
from tests.simulation.bugs.stages import LIMITED, SHARED
from tests.support import lua_account
from tests.support.lua_account import AccountBuckets


def _used_twice() -> AbstractContextManager[Any]:
    begin_call = AgentQuota.begin_call

    def keeping(self: AgentQuota, charge: Charge, now_s: float) -> float | None:
        grants = copy.deepcopy(self._grants)
        begun = begin_call(self, charge, now_s)
        if self.running % 2:
            self._grants = grants
        return begun

    return patched(AgentQuota, "begin_call", keeping)


def _heard_twice() -> AbstractContextManager[Any]:
    apply = AgentQuota.apply_answer

    def twice(
        self: AgentQuota, request: QuotaRequest, answer: QuotaAnswer, *times_s: float, **more: Any
    ) -> None:
        for _ in range(2):
            apply(self, request, answer, *times_s, **more)

    return patched(AgentQuota, "apply_answer", twice)


def _told_twice() -> AbstractContextManager[Any]:
    next_request = AgentQuota.next_request

    def twice(self: AgentQuota, now_s: float) -> QuotaRequest:
        request = next_request(self, now_s)
        back = request.refund
        tokens_in, tokens_out = max(0, back.tokens_in), max(0, back.tokens_out)
        more = replace(
            back, tokens_in=back.tokens_in + tokens_in, tokens_out=back.tokens_out + tokens_out
        )
        return replace(request, refund=more)

    return patched(AgentQuota, "next_request", twice)


def _begins_full() -> AbstractContextManager[Any]:
    begin = AccountBuckets.__init__

    def full(self: AccountBuckets) -> None:
        begin(self)
        self.buckets = {"rpm": 60.0}

    return patched(AccountBuckets, "__init__", full)


def _forgets_the_day() -> AbstractContextManager[Any]:
    next_request = AgentQuota.next_request

    def silent(self: AgentQuota, now_s: float) -> QuotaRequest:
        return replace(next_request(self, now_s), used_today=None, told_today=None)

    return patched(AgentQuota, "next_request", silent)


def _alone() -> AbstractContextManager[Any]:
    seat = AccountBuckets._lease_seats

    def alone(self: AccountBuckets, agent: str, request: QuotaRequest) -> Any:
        agents = self._agents
        self._agents = {name: seats for name, seats in agents.items() if name == agent}
        own = seat(self, agent, request)
        self._agents = agents
        return own

    return patched(AccountBuckets, "_lease_seats", alone)


def no_limit_of(kind: LimitKind) -> Callable[[], AbstractContextManager[Any]]:
    """Return what lets agents keep no limits of a kind."""
    find = ConfiguredQuotas.find

    def without(self: ConfiguredQuotas, name: LimitName) -> Any:
        return None if name[0] is kind else find(self, name)

    return replaced(ConfiguredQuotas, "find", without)


def _ended_twice() -> AbstractContextManager[Any]:
    note_ended = Quotas.note_ended

    def twice(self: Quotas, permit: Permit, charged: Charge | None) -> None:
        for _ in range(2):
            note_ended(self, permit, charged)

    return patched(Quotas, "note_ended", twice)


_TOKENS = {**LIMITED, "quota": {"tpm": 400}}
_DAYS = {**LIMITED, "quota": {"rpd": 8}, "horizon_s": 45.0}
_AWAY = [(1.0 + 13 * turn, "redis_away") for turn in range(3)]
_FLUSHED = [(10.0 + 10 * turn, "redis_flushed") for turn in range(4)]

BUGS = {
    "a grant is used twice": Bug("P5", _used_twice, LIMITED),
    "an answer of the grant store is heard twice": Bug("P5", _heard_twice, LIMITED),
    "an empty grant store grants a minute": Bug(
        "P5", _begins_full, {**LIMITED, "events": _FLUSHED}
    ),
    "without Redis each agent takes the whole limit": Bug(
        "P5",
        replaced(PartitionShare, "__call__", lambda _self: 1.0),
        {**LIMITED, "events": _AWAY, "quota": {"rpm": 60}, "horizon_s": 30.0, "tasks": 90},
    ),
    "a flushed Redis forgets the calls of the day": Bug(
        "P5", _forgets_the_day, {**_DAYS, "events": _FLUSHED}
    ),
    "a share fills twice as fast": Bug(
        "P5",
        replaced(share, "PACE", 2.0),
        {**LIMITED, "events": _AWAY, "quota": {"rpm": 60}, "horizon_s": 30.0, "tasks": 90},
    ),
    "without Redis each agent takes the whole day": Bug(
        "P5", replaced(PartitionShare, "__call__", lambda _self: 1.0), {**_DAYS, "events": _AWAY}
    ),
    "a grant of tokens is used twice": Bug("P5", _used_twice, _TOKENS),
    "what was not used is given back twice": Bug("P5", _told_twice, _TOKENS),
    "a limit fills twice as fast": Bug("P5", replaced(lua_account, "USE", 2.0), LIMITED),
    "a limit of tokens fills twice as fast": Bug("P5", replaced(lua_account, "USE", 2.0), _TOKENS),
    "the limit of a type over the group is not kept": Bug(
        "P5", no_limit_of(LimitKind.TYPE), SHARED
    ),
    "a named limit is not kept": Bug("P5", no_limit_of(LimitKind.NAMED), SHARED),
    "a use is given back twice": Bug("P5", _ended_twice, SHARED),
    "each agent takes all seats": Bug("P5", _alone, {**LIMITED, "quota": {"in_flight": 2}}),
}

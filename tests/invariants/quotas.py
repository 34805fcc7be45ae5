"""Limits of the provider: calls stay within them, whatever happens to agents and to Redis."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from tests.invariants.evidence import Call, Evidence, Quota
from tests.invariants.happened import Use

PROMPTS = "docllm-probe/"  # they belong to no task: a route is probed
MINUTE_S = 60.0
# Grants are used so late, and an idle account saves up so much, in seconds of its rate.
LATE_S = 2.1
_SAVED_S = 0.8


def above_the_rate(run: Evidence) -> list[str]:
    """Calls come no faster than the limit a minute, but for small bursts.

    A grant that is given twice, or used twice, makes them come faster.
    """
    quota = run.quota
    if quota is None or not quota.rpm:
        return []
    rate, burst = quota.rpm / MINUTE_S, _burst(quota)
    level = at_s = 0.0
    odd = []
    for call in _calls(run, quota):
        level = max(0.0, level - rate * (call.start_s - at_s)) + 1
        at_s = call.start_s
        if level > burst:
            odd.append(f"{call.name} at {at_s:.3f}: {level:.1f} more than {quota.rpm} a minute")
    return odd


def more_tokens(run: Evidence) -> list[str]:
    """Calls cost no more tokens than the limit a minute, but for small bursts.

    An estimate that is much too high is given back when its call ends. What it kept from others
    may be used then.
    """
    quota = run.quota
    if quota is None or not quota.tpm:
        return []
    rate, largest = quota.tpm / MINUTE_S, max(map(_tokens, run.calls), default=0)
    saved = _SAVED_S * rate + largest
    burst = (LATE_S + _longest_s(run)) * rate + saved * (1 + quota.faults + quota.agents)
    level = at_s = 0.0
    odd = []
    for call in _calls(run, quota):
        level = max(0.0, level - rate * (call.start_s - at_s)) + _tokens(call)
        at_s = call.start_s
        if level > burst:
            odd.append(f"{call.name} at {at_s:.3f}: {level:.1f} tokens above {quota.tpm} a minute")
    return odd


def more_at_once(run: Evidence) -> list[str]:
    """No more calls run at once than the limit says.

    A call of an agent that stood still is left out: the ledger took the agent for lost.
    """
    quota = run.quota
    if quota is None or not quota.in_flight:
        return []
    # When Redis fails, agents keep to shares while others' calls end.
    most = quota.in_flight if not quota.faults else 2 * quota.in_flight + quota.agents
    changes = sorted(
        change
        for call, end_s in _whole(run, quota)
        for change in ((call.start_s, 1, call.name), (end_s, -1, call.name))
    )
    running, odd = 0, []
    for at_s, change, name in changes:
        running += change
        if running > most:
            odd.append(f"{name} at {at_s:.3f}: {running} calls at once, {most} are allowed")
    return odd


def above_the_day(run: Evidence) -> list[str]:
    """No more calls are made in a day than the limit says, though Redis forgets and agents end.

    Grants of the evening may be used just after midnight. The calls of an agent that ended may be
    known to nobody, if Redis forgot them too. With shares, partitions that move may take their part
    of the limit twice. A call that found no connection is no call of the day.
    """
    quota = run.quota
    if quota is None or not quota.rpd:
        return []
    most = quota.rpd + (quota.rpd + quota.agents if quota.shares else 0)
    if quota.faults:
        ends_s = [agent.ended_s for agent in run.agents.values() if agent.ended_s is not None]
        most += run.slots * sum(end_s < quota.days_s[-1] for end_s in ends_s)
    starts_s = [call.start_s for call in _calls(run, quota) if call.connected]
    odd = []
    for begin_s, end_s in pairwise(quota.days_s):
        since_s = begin_s + LATE_S if begin_s else begin_s
        count = sum(since_s <= start_s < end_s for start_s in starts_s)
        if count > most:
            odd.append(f"{count} calls from {since_s:.3f} to {end_s:.3f}, {most} are allowed a day")
    return odd


def uses_above_their_limits(run: Evidence) -> list[str]:
    """Handlers use no more of what is limited, at once and in a minute, than the group may.

    A use of an agent that stood still is left out: the ledger took the agent for lost.
    """
    quota, odd = run.quota, []
    for name, limit in run.use_limits.items():
        uses = sorted((use for use in run.uses if use.limit == name), key=lambda use: use.start_s)
        whole = [use for use in uses if use.end_s is not None and _ran(run, use)]
        ends = [(use.end_s or 0.0, -1) for use in whole]
        most = limit.in_flight
        if quota is None or quota.faults:  # agents keep to shares while others' uses end
            most = 2 * most + len(run.agents)
        running = 0
        for at_s, change in sorted([*((use.start_s, 1) for use in whole), *ends]):
            running += change
            if running > most:
                odd.append(f"{at_s:.3f}: {running} uses of {name} at once, {most} are allowed")
        if not limit.rpm or quota is None:
            continue
        rate, burst = limit.rpm / MINUTE_S, _burst(replace(quota, rpm=limit.rpm))
        level = before_s = 0.0
        for use in uses:
            level = max(0.0, level - rate * (use.start_s - before_s)) + 1
            before_s = use.start_s
            if level > burst:
                odd.append(f"{before_s:.3f}: {level:.1f} uses of {name}, {limit.rpm} a minute")
    return odd


def _ran(run: Evidence, use: Use) -> bool:
    """Return whether the agent of a use that ended ran all the while."""
    return not any(
        agent.stood_still(use.start_s - LATE_S, use.end_s or 0.0)
        for agent in run.agents.values()
        if agent.program == use.program
    )


def _burst(quota: Quota) -> float:
    """Return how many calls may come at once.

    Each fault of Redis, and each agent, may add what an idle account saves up.
    """
    rate = quota.rpm / MINUTE_S
    saved = max(_SAVED_S * rate, 1 + 0.5 * rate)
    return 1 + LATE_S * rate + saved * (1 + quota.faults + quota.agents)


def _tokens(call: Call) -> int:
    return call.tokens_in + call.tokens_out


def _longest_s(run: Evidence) -> float:
    return max((call.end_s - call.start_s for call in run.calls if call.end_s), default=0.0)


def _calls(run: Evidence, quota: Quota) -> list[Call]:
    calls = [
        call
        for call in run.calls
        if call.route == quota.route and not call.name.startswith(PROMPTS)
    ]
    return sorted(calls, key=lambda call: call.start_s)


def _whole(run: Evidence, quota: Quota) -> Iterator[tuple[Call, float]]:
    """Yield the calls that ended, of programs that ran all the while, with their ends."""
    for call in _calls(run, quota):
        program = "" if call.claim is None else call.claim.program
        agents = [agent for agent in run.agents.values() if agent.program == program]
        if call.end_s is not None and not any(
            agent.stood_still(call.start_s - LATE_S, call.end_s) for agent in agents
        ):
            yield call, call.end_s

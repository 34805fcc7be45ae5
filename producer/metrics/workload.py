"""Computes a group's workload and capacity from one reading."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from docllm.producer.metrics.families import Reading
from docllm.producer.metrics.scale import ProviderAccount, Workload
from docllm.producer.text.urgency import Urgency
from docllm.schemas.agent_report import AgentReport, RouteFacts
from docllm.schemas.settings.account import account, quota_key
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.quota import NO_LIMITS, QuotaLimits
from docllm.schemas.settings.routing import configured_routes
from docllm.schemas.task.route_state import RouteState

# Reasons for which tasks wait although slots are free. More agents would wait too.
MORE_AGENTS_WOULD_WAIT = frozenset({Urgency.GUARD_RAISED, Urgency.TYPE_ASLEEP, Urgency.LOCK_HELD})


class ProviderAccounts:
    """The providers' accounts of the configured routes. Routes of one account share its limits."""

    def __init__(self, config: Config) -> None:
        llms = {route: account(config, route) for route in configured_routes(config)}
        self._keys = {route: quota_key(llm) for route, llm in llms.items()}
        self._limits: Mapping[str, QuotaLimits] = {
            quota_key(llm): llm.limits for llm in llms.values()
        }

    def with_work(self, facts: Iterable[RouteFacts]) -> Collection[ProviderAccount]:
        """Return the accounts of busy open routes; all accounts if there is no such route.

        An account whose routes are all closed is left out.
        """
        facts = tuple(facts)
        of_route: dict[str, list[RouteFacts]] = {}
        for fact in facts:
            of_route.setdefault(fact.name, []).append(fact)
        learned: dict[str, float | None] = {}
        for route, route_facts in of_route.items():
            if all(map(is_closed, route_facts)):
                continue
            key, calls = self._keys.get(route, route), learned_calls(route_facts)
            others = learned.get(key, 0.0)
            learned[key] = None if calls is None or others is None else others + calls
        if not learned:
            return [ProviderAccount(limits=limits) for limits in self._limits.values()]
        return [
            ProviderAccount(limits=self._limits.get(key, NO_LIMITS), learned=calls)
            for key, calls in learned.items()
        ]


def is_closed(facts: RouteFacts) -> bool:
    """Return whether a route takes no calls in an agent: it is stopped, parked or paused."""
    return facts.state != RouteState.OPEN or bool(facts.since)


def learned_calls(facts: Collection[RouteFacts]) -> float | None:
    """Return how many calls at once a route takes, by its level in each agent; None if unknown.

    An agent that has just started has no level yet, and a route that pauses has none for a moment.
    Such agents count with the mean of the others, as long as most agents have a level.
    """
    levels = [
        float(route.allowed or 0) for route in facts if route.allowed and not is_closed(route)
    ]
    free = sum(route.allowed is None and not is_closed(route) for route in facts)
    if not levels or free >= len(levels):
        return None
    return sum(levels) / len(levels) * len(facts)


def workload(reading: Reading, *, slots: int, accounts: ProviderAccounts) -> Workload:
    """Return the group's workload.

    `slots` are an agent's slots while no agent reports any.
    """
    status, sums = reading.snapshot.status, reading.snapshot.sums
    reports = [agent.report for agent in status.agents if agent.works and agent.report is not None]
    facts = [route for report in reports for route in report.routes]
    open_routes = {route.name for route in facts if not is_closed(route)}
    routes = {route.name for route in facts}
    inbox = reading.backlogs.get("inbox")
    retrying = sum(batch.counts["retrying"] for batch in status.batches)
    succeeded = sum(count for key, count in sums.attempts.items() if key[1] == "succeeded")
    tokens: Counter[str] = Counter()
    for (_, direction), count in sums.tokens.items():
        tokens[direction] += count
    return Workload(
        waiting=max(0, sums.open - retrying) + (0 if inbox is None else inbox.lag),
        unfinished=sums.open,
        agents=sum(agent.works for agent in status.agents),
        slots=max((report.slots for report in reports), default=0) or slots,
        busy=sum(report.running for report in reports),
        ended_per_s=_ended_per_s(reading),
        oldest_s=max(map(_oldest_s, reports), default=0.0),
        partitions=None if inbox is None else reading.partitions,
        routes=len(routes),
        closed_routes=len(routes - open_routes),
        waits_on_purpose=any(wait.urgency in MORE_AGENTS_WOULD_WAIT for wait in status.waits),
        accounts=accounts.with_work(facts),
        tokens_in=tokens["in"] / succeeded if succeeded else 0.0,
        tokens_out=tokens["out"] / succeeded if succeeded else 0.0,
    )


def _ended_per_s(reading: Reading) -> float:
    """Return the tasks per second that ended lately: in the last minute, or else in ten."""
    batches = reading.snapshot.status.batches
    lately = sum(batch.rate_per_s for batch in batches)
    minutes = [batch.per_minute for batch in batches if batch.per_minute]
    return lately or sum(map(sum, minutes)) / (60 * max(map(len, minutes), default=1))


def _oldest_s(report: AgentReport) -> float:
    return 0.0 if report.oldest_call is None else report.oldest_call.running_s

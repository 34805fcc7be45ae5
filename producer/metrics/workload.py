"""What a group has to do and what does it, from one reading.

Tested by tests/unit/producer/metrics/test_scale.py and tests/integration/test_exporter.py.
"""

from collections import Counter
from collections.abc import Collection

from producer.metrics.families import Reading
from producer.metrics.scale import Workload
from schemas.settings.account import account, quota_key
from schemas.settings.config import Config
from schemas.settings.quota import QuotaLimits
from schemas.settings.routing import configured_routes
from schemas.task.route_state import RouteState


def account_limits(config: Config) -> Collection[QuotaLimits] | None:
    """Return the limits of all accounts; None if one has none, so that it feeds any number."""
    accounts = {
        quota_key(llm): llm.limits
        for llm in (account(config, route) for route in configured_routes(config))
    }
    return list(accounts.values()) if all(each.given for each in accounts.values()) else None


def workload(reading: Reading, *, slots: int, limits: Collection[QuotaLimits] | None) -> Workload:
    """Return what there is to do. `slots` are those of an agent, as long as none is alive."""
    status, sums = reading.snapshot.status, reading.snapshot.sums
    reports = [agent.report for agent in status.agents if agent.works and agent.report is not None]
    working = sum(agent.works for agent in status.agents)
    inbox = reading.backlogs.get("inbox")
    retrying = sum(batch.counts["retrying"] for batch in status.batches)
    states = [route.state for report in reports for route in report.routes]
    succeeded = sum(count for key, count in sums.attempts.items() if key[1] == "succeeded")
    tokens: Counter[str] = Counter()
    for (_, direction), count in sums.tokens.items():
        tokens[direction] += count
    return Workload(
        waiting=max(0, sums.open - retrying) + (0 if inbox is None else inbox.lag),
        unfinished=sums.open,
        agents=working,
        slots=max((report.slots for report in reports), default=0) or slots,
        busy=sum(report.running for report in reports),
        ended_per_s=sum(batch.rate_per_s for batch in status.batches),
        partitions=reading.partitions,
        closed=bool(states) and all(state != RouteState.OPEN for state in states),
        limits=limits,
        tokens_in=tokens["in"] / succeeded if succeeded else 0.0,
        tokens_out=tokens["out"] / succeeded if succeeded else 0.0,
    )

"""The metrics of a group's tasks, their attempts, and the releases that made them."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import Metric

from docllm.producer.ledger.replay_progress import ItemState
from docllm.producer.ledger.status.group_status import GroupStatus
from docllm.producer.ledger.status.snapshot import Snapshot
from docllm.producer.metrics.family import Labels, counter, gauge
from docllm.schemas.task.states import FINAL, Status
from docllm.schemas.text.wording import units


def of_tasks(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield how many tasks there are, and what became of them."""
    group, sums = snapshot.status.group, snapshot.sums
    yield gauge(
        "docllm_tasks",
        "Tasks by state, without those that were purged.",
        ("group", "state"),
        {
            (group, status.name.lower()): count
            for status, count in _tasks_by_state(snapshot).items()
        },
    )
    yield gauge("docllm_tasks_open", "Tasks that are not final.", ("group",), {(group,): sums.open})
    yield counter(
        "docllm_tasks_loaded", "Tasks that were loaded.", ("group",), {(group,): sums.loaded}
    )
    yield counter(
        "docllm_tasks_replayed", "Replays of tasks.", ("group",), {(group,): sums.replayed}
    )
    yield counter(
        "docllm_tasks_ended",
        "Tasks that became final; counted again after each replay.",
        ("group", "state"),
        {(group, status.name.lower()): sums.ended[status] for status in FINAL},
    )
    yield counter(
        "docllm_tasks_dead",
        "Tasks that were given up; counted again after each replay.",
        ("group", "class", "disposition"),
        {(group, *key): count for key, count in sums.dead.items()},
    )
    yield from _of_what_failed(snapshot)


def _tasks_by_state(snapshot: Snapshot) -> Mapping[Status, int]:
    sums = snapshot.sums
    counts: Counter[str] = Counter()
    for batch in snapshot.status.batches:
        counts.update({name: batch.counts[name] for name in ("processing", "retrying")})
    of_state = {status: max(0, sums.kept[status]) for status in FINAL}
    of_state[Status.PROCESSING], of_state[Status.RETRYING] = (
        counts["processing"],
        counts["retrying"],
    )
    of_state[Status.PENDING] = max(0, sums.open - counts["processing"] - counts["retrying"])
    return of_state


def _of_what_failed(snapshot: Snapshot) -> Iterator[Metric]:
    group, sums = snapshot.status.group, snapshot.sums
    yield gauge(
        "docllm_dead_letters",
        "Tasks that are dead now, without those whose dead letters were purged.",
        ("group",),
        {(group,): max(0, sums.kept[Status.DEAD])},
    )
    yield gauge(
        "docllm_quarantined_records",
        "Records that are no tasks.",
        ("group",),
        {(group,): snapshot.status.quarantined},
    )
    yield gauge(
        "docllm_replay_items",
        "Items of replays that have not ended.",
        ("group", "state"),
        {(group, state.name.lower()): snapshot.replaying[state] for state in ItemState},
    )


def of_attempts(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield what became of attempts and calls, and what they cost."""
    group, sums = snapshot.status.group, snapshot.sums
    yield counter(
        "docllm_attempts",
        "Attempts that ended, by route, outcome and class of error.",
        ("group", "route", "outcome", "class"),
        {(group, *key): count for key, count in sums.attempts.items()},
    )
    yield counter(
        "docllm_calls_abandoned",
        "Attempts given up after a call, because their agent drained or lost its lease.",
        ("group", "route"),
        {(group, route): count for route, count in sums.abandoned.items()},
    )
    yield counter(
        "docllm_tokens",
        "Tokens of calls; those of direction cached are part of those of in.",
        ("group", "route", "direction"),
        {(group, *key): count for key, count in sums.tokens.items()},
    )
    yield counter(
        "docllm_cost_units",
        "Cost of calls with a price, in the currency of the prices, by what became of the attempt.",
        ("group", "route", "outcome"),
        {
            (group, *key): units(micro)
            for key, micro in sums.cost_micro.items()
            if micro or not sums.unpriced[key]
        },
    )


def of_releases(status: GroupStatus) -> Iterator[Metric]:
    """Yield the releases that worked last; of the others there is no series."""
    group, releases = status.group, status.releases
    attempts: dict[Labels, float] = {
        (group, release.name, outcome): count
        for release in releases
        for outcome, count in (
            ("succeeded", release.total.succeeded),
            ("failed", release.total.failed),
        )
    }
    yield counter(
        "docllm_release_attempts",
        "Attempts that succeeded, or failed and counted, of the releases that worked last.",
        ("group", "release", "outcome"),
        attempts,
    )
    yield counter(
        "docllm_release_cost_units",
        "Cost of these attempts in the currency of the prices.",
        ("group", "release"),
        {
            (group, release.name): units(release.total.cost_micro)
            for release in releases
            if release.total.cost_micro or not release.total.unpriced
        },
    )
    yield gauge(
        "docllm_release_worse",
        "1 if a release fails more often than the others on the same routes in the same minutes.",
        ("group", "release"),
        {(group, release.name): int(release.is_worse) for release in releases},
    )

"""The evidence of a run, put together from seven independent records.

Topics and offsets come from the watch, rows and attempts from the database, calls from the LLM's
own log, faults from the fault log, programs from their output, what they counted from their pages
of metrics, and traces from a collector. Every time is in seconds since 1970.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select, text

from docllm.schemas.ledger import tables
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.lanes import DESTINATIONS
from tests.faults import exported, history, lives, rows, traced
from tests.faults.claims import ROUTE, Claims
from tests.faults.exported import Exported, Samples, Series
from tests.faults.faultlog import Event
from tests.faults.history import seconds
from tests.faults.kinds_llm import OUTAGES
from tests.faults.lives import Life
from tests.faults.received_calls import ReceivedCall, received_calls
from tests.faults.site import SLOTS, Site
from tests.faults.traced import Traced
from tests.faults.watch import Watch
from tests.invariants.evidence import Death, Evidence, Letter, Task
from tests.invariants.happened import Commit, Move, Outage, Stored

KAFKA_CLOCK_S = 0.001  # the unit of Kafka's times, which are truncated


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """The evidence of a whole run.

    `agents` has the program of each incarnation, `bugs` the programs' messages about bugs.
    `limited`: the provider had limits.
    """

    run: Evidence
    received: Sequence[ReceivedCall]
    faults: Sequence[Event]
    lives: Sequence[Life]
    agents: Mapping[int, Life]
    bugs: Sequence[str]
    exported: Exported | None = None
    traced: Traced | None = None
    limited: bool = False


def gather(site: Site, watch: Watch, series: Mapping[str, Series], last: Samples) -> RunEvidence:
    """Put all evidence together after the end."""
    base, traffic, url = site.deployment.evidence(), site.traffic, site.ledger_url
    tasks = {task.name: task for task in base.tasks}
    alive = lives.lives(site.log.events)
    agents = lives.owners(site, alive)
    moves = rows.moves(url)
    claims = Claims(
        moves,
        agents,
        [
            (fault["start_s"], fault["end_s"])
            for fault in site.log.of("fault")
            if fault["kind"] == "llm-freeze"
        ],
    )
    calls = [
        replace(received, call=claims.known(received, tasks.get(received.call.name)))
        for received in received_calls(site)
    ]
    run = replace(
        base,
        loaded=frozenset(traffic.loaded | (traffic.maybe & tasks.keys())),
        attempts=rows.attempts(url, moves),
        calls=[call.call for call in calls],
        moves=moves,
        declared_lost=rows.declared_lost(url),
        agents=lives.incarnations(site, agents),
        counts=rows.counts(url),
        sums=rows.sums(url),
        ordered=rows.ordered(url),
        guards=rows.guards(url),
        replayed=rows.replayed(url),
        letters=_letters(site, watch),
        outages=_outages(site),
        slots=int(SLOTS),
        records=_records(site, watch, base.tasks, moves),
        commits=_commits(site, watch),
        relief=True,
    )
    return RunEvidence(
        run,
        calls,
        site.log.of("fault"),
        alive,
        agents,
        lives.bugs(site.deployment.programs),
        Exported(series, last, exported.rows(lambda sql: list(history.rows(url, text(sql))))),
        _traced(site, watch, moves),
        limited=site.limited,
    )


def _traced(site: Site, watch: Watch, moves: Sequence[Move]) -> Traced:
    url, inbox = site.ledger_url, site.deployment.topics.name("inbox")
    settled_s = {(move.task_id, move.old_owner): move.at_s for move in moves if move.ends}
    query = text("SELECT task_id, owner, outcome, error_class FROM task_attempt")
    ends: Iterable[Any] = history.rows(url, query)
    ((ledger,),) = history.rows(url, select(tables.ledger.c.ledger_id))
    return Traced(
        ledger=ledger.hex(),
        spans=traced.seen(site.collector),
        records=[
            (
                int(record.headers["docllm-task"]),
                record.headers.get(header_names.TRACEPARENT, b"").decode(),
            )
            for record in watch.records
            # A foreign record that only claims to be a task's names no ledger.
            if {"docllm-ledger", "docllm-task"} <= record.headers.keys() and record.topic != inbox
        ],
        attempts=traced.failed(
            (row.task_id, row.owner, row.outcome, row.error_class, at_s)
            for row in ends
            if (at_s := settled_s.get((row.task_id, row.owner))) is not None
        ),
        silent=traced.silent(site.deployment.programs),
    )


def _outages(site: Site) -> list[Outage]:
    """Return the times in which the LLM was set to fail every call."""
    settings = (
        (fault, *str(fault["evidence"].get("dialed", "")).partition(",")[0].partition("=")[::2])
        for fault in site.log.of("fault")
    )
    return [
        Outage(ROUTE, fault, event["start_s"], event["end_s"])
        for event, fault, share in settings
        if fault in OUTAGES and share == "1"
    ]


def _letters(site: Site, watch: Watch) -> list[Letter]:
    """Return the records of the dead-letter topic."""
    letters = []
    for record in watch.records:
        if record.topic == site.deployment.topics.name("dlq"):
            pointer = "docllm-pointer" in record.headers
            if "docllm-quarantine" in record.headers:
                letters.append(
                    Letter(
                        record.key,
                        record.value,
                        quarantine_id=int(record.headers["docllm-quarantine"]),
                        pointer=pointer,
                    )
                )
            else:
                headers = {
                    name: record.headers.get(f"docllm-{name}", b"").decode()
                    for name in ("fence", "disposition", "error-class")
                }
                death = Death(int(headers["fence"]), headers["disposition"], headers["error-class"])
                letters.append(
                    Letter(
                        record.key,
                        record.value,
                        int(record.headers["docllm-task"]),
                        death=death,
                        pointer=pointer,
                    )
                )
    return letters


def _records(
    site: Site, watch: Watch, tasks: Sequence[Task], moves: Sequence[Move]
) -> list[Stored]:
    """Return the records of the topics that agents read."""
    topics = site.deployment.topics
    dlq, inbox = topics.name("dlq"), topics.name("inbox")
    kept = {
        (row.topic, row.part, row.record_offset): seconds(row.created_at)
        for row in site.deployment.ledger.quarantined()
    }
    created = {move.task_id: move.at_s for move in moves if move.before is None}
    known = {task.value: created.get(task.id) for task in tasks}
    deleted = _deleted(site, topics.name("tasks"))
    stored = []
    for record in watch.records:
        if record.topic == dlq:
            continue
        ours = "docllm-ledger" in record.headers and record.topic != inbox
        stored.append(
            Stored(
                topic=record.topic,
                number=record.number,
                offset=record.offset,
                order=record.at_s,
                task_id=int(record.headers["docllm-task"]) if ours else None,
                fence=int(record.headers["docllm-fence"]) if ours else 0,
                kept=kept.get((record.topic, record.number, record.offset)),
                known=known.get(record.value or b"") if record.topic == inbox else None,
                lost=next(
                    (
                        at_s
                        for topic, number, low, at_s in deleted
                        if (record.topic, record.number) == (topic, number) and record.offset < low
                    ),
                    None,
                ),
            )
        )
    return stored + _unseen(stored)


def _unseen(records: Sequence[Stored]) -> list[Stored]:
    """Return a record for each offset that was deleted before the watch saw it."""
    seen_offsets: dict[tuple[str, int], set[int]] = defaultdict(set)
    for record in records:
        seen_offsets[record.topic, record.number].add(record.offset)
    gaps = (
        (place, offset)
        for place, offsets in seen_offsets.items()
        for offset in range(max(offsets))
        if offset not in offsets
    )
    return [Stored(topic, number, offset, 0.0, lost=0.0) for (topic, number), offset in gaps]


def _deleted(site: Site, topic: str) -> list[tuple[str, int, int, float]]:
    """Return the deletions of records by faults, oldest first.

    Each has a partition, the offset below which records were deleted, and the time.
    """
    faults = site.log.of("fault")
    return [
        (topic, number, low, fault["start_s"])
        for fault in faults
        for number, low in fault["evidence"].get("lows", ())
    ]


def _commits(site: Site, watch: Watch) -> list[Commit]:
    """Return the commits of this group's readers."""
    topics = site.deployment.topics
    groups = {
        topics.consumer_group(destination)
        for destination in (*DESTINATIONS, "inbox", *topics.tier_destinations)
    }
    return [
        Commit(commit.at_s + KAFKA_CLOCK_S, commit.topic, commit.number, commit.offset)
        for commit in watch.commits
        if commit.group in groups
    ]

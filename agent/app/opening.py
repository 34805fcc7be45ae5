"""Opens what an agent uses: its threads, and its ways to the bus, the ledger, Redis and LLMs."""

import os
import random
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.documents.conversion.converters import Converters
from docllm.agent.handlers.processes.pool import HandlerProcesses
from docllm.agent.handlers.processes.starting import ProcessStarter, check
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.ledger.sql_ledger import Executors
from docllm.agent.llm.client import ChatClient
from docllm.agent.maintenance.duty import Duty, DutyLoop
from docllm.agent.maintenance.monitoring import topic_settings
from docllm.agent.maintenance.monitoring.loop_watch import LoopWatch
from docllm.agent.maintenance.monitoring.topic_settings import compare_topics
from docllm.agent.membership.heartbeat import Heartbeat, HeartbeatThread
from docllm.agent.membership.life_locks import LifeLocks
from docllm.agent.ports import Source
from docllm.agent.process.child_executor import ChildExecutor
from docllm.agent.process.data_folder import watch_of_files
from docllm.agent.quota.grants import GrantStore
from docllm.agent.reporting.latest_report import LatestReport
from docllm.agent.reporting.telemetry import Counts
from docllm.agent.routes import Router
from docllm.agent.routes.clients import RouteClients
from docllm.agent.routes.sharing.board import Board
from docllm.agent.routes.sharing.sync import BoardSync
from docllm.agent.wiring.choices import AgentChoices, Rereading
from docllm.agent.wiring.retention import make_retention_loops
from docllm.producer.app import Parts, bus_path
from docllm.producer.bus.embedded.life_lock import AGENTS
from docllm.schemas.agent_report import AgentReport
from docllm.schemas.ledger import migrations
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.objects.output_stores import OutputStores
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.executors import InlineExecutor, ThreadExecutor
from docllm.schemas.settings.account import configured_routes
from docllm.schemas.settings.config import Secret
from docllm.schemas.settings.sources import LEDGER_FILE, ledger_url
from docllm.schemas.task.record.lanes import DESTINATIONS
from docllm.schemas.version import VERSION

if TYPE_CHECKING:
    from docllm.agent.reporting.metrics import AgentMetrics

HEARTBEAT_TIMEOUT_S = 5
SETTLES_AT_ONCE = 2  # on a server; SQLite has one writer
_MAX_CONVERTERS = 4  # processes of one agent; each takes some 40 MB


def make_source(parts: Parts, destination: str, ids: StoredIdsReader) -> Source:
    """Return the consumer handle of one destination."""
    topics, group_id = [parts.topics.name(destination)], parts.topics.consumer_group(destination)
    if parts.config.embedded:
        # A program loads only the adapters that it uses.
        from docllm.agent.consumer.embedded.source import EmbeddedSource  # noqa: PLC0415

        path = bus_path(parts.config)
        return EmbeddedSource(
            bus_path=path,
            topics=topics,
            group_id=group_id,
            topic_ids=ids,
            clock=parts.clock,
        )
    from docllm.agent.consumer.kafka.source import KafkaSource  # noqa: PLC0415 - see above

    return KafkaSource(
        config=parts.config.kafka,
        topics=topics,
        group_id=group_id,
        topic_ids=ids,
        admin=parts.admin,
        clock=parts.clock,
        outage=parts.kafka,
    )


def make_heartbeat(
    parts: Parts, database: Database, report: Callable[[], str], locks: LifeLocks | None, role: str
) -> Heartbeat:
    """Return the heartbeat. Its `database` must be used for nothing else."""
    return Heartbeat(
        transactions=Transactions(database=database, executor=InlineExecutor()),
        clock=parts.clock,
        name=f"{socket.gethostname()}:{os.getpid()}{role}",
        group=parts.topics.group,
        version=VERSION,
        locks=locks,
        revision=migrations.own_revision(),
        report=report,
        release=parts.config.agent.release,
    )


def beat_database(parts: Parts) -> Database:
    """Return the ledger over a connection that only the heartbeat uses."""
    return Database(
        ledger_url(parts.config),
        connections=1,
        timeout_s=HEARTBEAT_TIMEOUT_S,
        outage=parts.transactions.database.outage,
    )


def data_folder_watch(parts: Parts) -> DutyLoop:
    """Return the watch over the embedded parts' files; with servers it watches no files."""
    embedded = parts.config.embedded
    return watch_of_files(
        (parts.config.data_dir / LEDGER_FILE, bus_path(parts.config)) if embedded else (),
        clock=parts.clock,
    )


def make_board(parts: Parts) -> Board | None:
    """Return the board on which a group's agents share facts about routes; None without Redis."""
    url = parts.config.redis_url
    if url is None:
        return None
    from docllm.agent.routes.sharing.redis_board import RedisBoard  # noqa: PLC0415 - only with Redis

    return RedisBoard(url=url, group=parts.topics.group, agent=_process_name())


def make_grant_store(parts: Parts) -> GrantStore | None:
    """Return the grant store by which agents share the provider's limits; None without Redis."""
    url = parts.config.redis_url
    if url is None:
        return None
    from docllm.agent.quota.redis_grants import RedisGrantStore  # noqa: PLC0415 - only with Redis

    return RedisGrantStore(url=url, agent=_process_name())


def _process_name() -> str:
    """Return a name that no other process has."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def life_locks(parts: Parts) -> LifeLocks | None:
    """Return the lock files that prove an agent's death; None without the embedded parts.

    Lock files prove nothing across machines, and without the embedded parts agents may run on
    several machines.
    """
    return LifeLocks(parts.config.data_dir / AGENTS) if parts.config.embedded else None


def open_choices(
    parts: Parts,
    ids: StoredIdsReader,
    closing: AsyncExitStack,
    *,
    rehearsal: bool,
    form: AgentReport,
    reply_limit_bytes: int,
    rereading: Rereading,
) -> tuple[AgentChoices, HeartbeatThread]:
    """Open threads, then clients, for one agent; they are closed in the opposite order."""
    config, clock = parts.config, parts.clock
    writing, retaining = _thread(closing, "outputs", 4), _thread(closing, "retention")
    reading, child = _thread(closing, "documents", 4), ChildExecutor()
    settles = 1 if parts.transactions.database.sqlite else SETTLES_AT_ONCE
    settle, claim = _thread(closing, "settle", settles), _thread(closing, "claim")
    closing.callback(child.close)
    starting = _thread(closing, "processes")
    starter = ProcessStarter(thread=starting, clock=clock)
    # Conversion is bound by the CPU.
    converters = Converters(
        thread=starting, max_processes=min(os.cpu_count() or 1, _MAX_CONVERTERS)
    )
    closing.push_async_callback(starter.close)
    closing.push_async_callback(converters.close)
    closing.callback(parts.transactions.database.abandon)
    board, grant_store = make_board(parts), make_grant_store(parts)
    routes = Router(config=config, group=parts.topics.group, jitter=random.random)
    route_clients = RouteClients(config=config, naming=routes.naming, connect=_connect)
    for shared in (board, grant_store):
        if shared is not None:
            closing.push_async_callback(shared.close)
    closing.push_async_callback(route_clients.close)
    locks, beats = life_locks(parts), beat_database(parts)
    closing.callback(beats.close)
    counts, watch = Counts(), LoopWatch(clock=clock)
    latest = LatestReport(clock=clock, blocked=watch.blocked)
    role = " (rehearsal LLM)" if rehearsal else ""
    heartbeat = make_heartbeat(parts, beats, latest.json, locks, role)
    beating = HeartbeatThread(heartbeat, executor=parts.transactions.executor)
    choices = AgentChoices(
        parts=parts,
        limits=InFlightLimits(),
        sources={
            destination: make_source(parts, destination, ids)
            for destination in (*DESTINATIONS, *parts.topics.tier_destinations)
        },
        inbox=make_source(parts, "inbox", ids) if config.inbox.enabled else None,
        executors=Executors(
            claim=claim,
            settle=settle,
            background=parts.transactions.executor,
            settles_at_once=settles,
        ),
        reading=reading,
        apart=child,
        processes=HandlerProcesses(check=check, start=starter, max_processes=config.agent.slots),
        converters=converters,
        outputs=OutputStores(executor=writing, objects=ObjectStores(), allow=config.document_allow),
        routes=routes,
        route_clients=route_clients,
        grant_store=grant_store,
        heartbeat=heartbeat,
        membership=beating,
        locks=locks,
        counts=counts,
        latest=latest,
        form=form,
        watch=watch,
        metrics=_metrics(parts, counts, watch, heartbeat),
        reply_limit_bytes=reply_limit_bytes,
        jitter=random.random,
        duties=(
            *_own_duties(parts, ids, counts),
            *(() if board is None else (_sharing(routes, board, clock),)),
            *make_retention_loops(parts, retaining),
        ),
        rereading=rereading,
    )
    return choices, beating


def _thread(closing: AsyncExitStack, name: str, most: int = 1) -> ThreadExecutor:
    executor = ThreadExecutor(name, threads=most)
    closing.callback(executor.close)
    return executor


def _connect(base_url: str, api_key: Secret | None, headers: Mapping[str, Secret]) -> ChatClient:
    return ChatClient(base_url=base_url, api_key=api_key, headers=headers)


def _sharing(routes: Router, board: Board, clock: Clock) -> DutyLoop:
    return BoardSync(routes=routes, board=board, clock=clock, jitter=random.random).run


def _own_duties(parts: Parts, ids: StoredIdsReader, counts: Counts) -> Sequence[DutyLoop]:
    """Return duties about topics and files, which a simulation does without."""
    duties = (ids.run, data_folder_watch(parts))
    if parts.config.embedded:  # nobody else can change embedded topics
        return duties
    compare = partial(compare_topics, parts.family, counts, parts.topics.group)
    comparison = Duty(name="comparing topics", work=compare, clock=parts.clock, kafka=parts.kafka)
    return (*duties, comparison.every(topic_settings.EVERY_S))


def _metrics(
    parts: Parts, counts: Counts, watch: LoopWatch, heartbeat: Heartbeat
) -> "AgentMetrics | None":
    """Return the agent's metrics; None if nobody can read them."""
    if parts.config.agent.http is None:
        return None
    from docllm.agent.reporting.metrics import AgentMetrics  # noqa: PLC0415 - many have none

    return AgentMetrics(
        group=parts.topics.group,
        routes=configured_routes(parts.config),
        counters=(
            (
                "docllm_fenced",
                "Outcomes that were settled too late: another agent had already taken the task.",
                lambda: counts.superseded,
            ),
            (
                "docllm_leases_lost",
                "How often this agent lost its lease and continued under a new incarnation.",
                lambda: heartbeat.leases_lost,
            ),
            (
                "docllm_spans_dropped",
                "Spans of traces that were not sent, because the collector did not take them.",
                lambda: 0 if parts.spans is None else parts.spans.dropped,
            ),
        ),
        gauges=(
            (
                "docllm_event_loop_lag_seconds",
                "How long the event loop took to answer at the last check.",
                lambda: watch.lag_s,
            ),
        ),
        by_label=(
            (
                "docllm_odd_answers",
                "Answers that were taken although they are not as OpenAI would send them.",
                "kind",
                counts.odd_answers.counts,
            ),
            (
                "docllm_tasks_reset",
                "Tasks that this agent took from claims: of lost agents, or overdue ones.",
                "cause",
                lambda: counts.resets,
            ),
        ),
    )

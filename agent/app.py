"""The agent's composition root: chooses adapters, starts threads, and closes what it opened.

Tested by tests/integration/test_cli.py and tests/integration/test_drain.py.
"""

import asyncio
import logging
import os
import random
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from agent.agent import Agent, Reaper
from agent.consumer.known_topics import TopicIds
from agent.documents.conversion.converters import Converters
from agent.handlers.child import ChildExecutor
from agent.handlers.processes.pool import HandlerProcesses
from agent.handlers.processes.starting import ProcessStarter, check
from agent.inflight.limits import Limits
from agent.ledger import queries
from agent.ledger.sql_ledger import Executors
from agent.llm.client import ChatClient
from agent.maintenance.duty import Round
from agent.maintenance.loop_watch import LoopWatch
from agent.maintenance.rounds import repair_rounds
from agent.maintenance.settings_reader import RereadRequest
from agent.membership.heartbeat import Heartbeat, HeartbeatThread
from agent.membership.locks import AgentLocks
from agent.ports import Source
from agent.process.data_folder import DataFolder
from agent.quota.grants import GrantStore
from agent.reporting.health import Health
from agent.reporting.latest_report import LatestReport
from agent.reporting.metrics import AgentMetrics
from agent.reporting.progress import Progress
from agent.reporting.telemetry import Counts
from agent.routes import Router
from agent.routes.accounts import Accounts
from agent.routes.sharing.board import Board
from agent.routes.sharing.sync import BoardSync
from agent.wiring.agent import Chosen, agent
from agent.wiring.live_settings import Rereading
from agent.wiring.retention import retention_rounds
from producer.app import Parts, bus_path, make_relay
from producer.bus.embedded.lock import AGENTS
from producer.ledger.status.agent_status import REAPER
from producer.metrics.http_server import HttpPage, HttpServer
from producer.replay.applier import make_applier
from schemas.codes import Code
from schemas.ledger import migrations
from schemas.ledger.database import Database
from schemas.ledger.transactions import Transactions
from schemas.objects.store import ObjectStores
from schemas.outputs.stores import OutputStores
from schemas.runtime.address import Address
from schemas.runtime.executors import InlineExecutor, ThreadExecutor
from schemas.settings.config import Config
from schemas.settings.digest import settings_digest
from schemas.settings.routing import configured_routes
from schemas.settings.sources import LEDGER_FILE, ledger_url
from schemas.task.agent_report import AgentReport
from schemas.task.lanes import DESTINATIONS
from schemas.version import VERSION

log = logging.getLogger(__name__)

_MOST_CONVERTERS = 4  # processes of one agent; each takes some 40 MB

HEARTBEAT_TIMEOUT_S = 5


def make_source(parts: Parts, destination: str, ids: TopicIds) -> Source:
    """Return the consumer handle of one destination."""
    topics, group_id = [parts.topics.name(destination)], parts.topics.consumer_group(destination)
    if parts.config.embedded:
        # A program loads only the adapters that it uses.
        from agent.consumer.embedded.source import EmbeddedSource  # noqa: PLC0415

        path = bus_path(parts.config)
        return EmbeddedSource(
            bus_path=path,
            topics=topics,
            group_id=group_id,
            topic_ids=ids,
            clock=parts.clock,
        )
    from agent.consumer.kafka.source import KafkaSource  # noqa: PLC0415 - see above

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
    parts: Parts, database: Database, report: Callable[[], str], locks: AgentLocks | None, role: str
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


def data_folder(parts: Parts) -> DataFolder:
    """Return the watch over the embedded parts' files; with servers it watches no files."""
    embedded = parts.config.embedded
    return DataFolder(
        (parts.config.data_dir / LEDGER_FILE, bus_path(parts.config)) if embedded else (),
        parts.clock,
    )


def make_board(parts: Parts) -> Board | None:
    """Return the board on which a group's agents share facts about routes; None without Redis."""
    url = parts.config.redis_url
    if url is None:
        return None
    from agent.routes.sharing.redis_board import RedisBoard  # noqa: PLC0415 - only with Redis

    return RedisBoard(url=url, group=parts.topics.group, agent=_process_name())


def make_grant_store(parts: Parts) -> GrantStore | None:
    """Return the ledger by which agents share the provider's limits; None without Redis."""
    url = parts.config.redis_url
    if url is None:
        return None
    from agent.quota.redis_grants import RedisGrantStore  # noqa: PLC0415 - only with Redis

    return RedisGrantStore(url=url, agent=_process_name())


def _process_name() -> str:
    """Return a name that no other process has."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def agent_locks(parts: Parts) -> AgentLocks | None:
    """Return the lock files that prove an agent's death; None without the embedded parts.

    Lock files prove nothing across machines, and without the embedded parts agents may run on
    several machines.
    """
    return AgentLocks(parts.config.data_dir / AGENTS) if parts.config.embedded else None


@asynccontextmanager
async def built(
    parts: Parts,
    *,
    rehearsal: bool,
    load: Callable[[], Config],
    reread: RereadRequest,
    tell: Callable[[bytes], None] | None = None,
    number: int = 1,
) -> AsyncIterator[tuple[Agent, Progress]]:
    """Build an agent, register it and start its heartbeat; close everything at the end.

    `tell` sends messages to the parent process. `number` is this agent's number, from 1; agent 1
    reports the group's progress. `load` reads the settings again. `reread` is set by a signal and
    requests such a read.
    """
    if rehearsal:
        parts = replace(parts, config=_rehearsed(parts.config))
    claim, settle, reading, writing, child = (
        ThreadExecutor("claim"),
        ThreadExecutor("settle"),
        ThreadExecutor("documents", 4),
        ThreadExecutor("outputs", 4),
        ChildExecutor(),
    )
    starting, retaining = ThreadExecutor("processes"), ThreadExecutor("retention")
    starter = ProcessStarter(thread=starting, clock=parts.clock)
    processes = HandlerProcesses(check=check, start=starter, most=parts.config.agent.slots)
    converters = Converters(thread=starting, most=_converters())
    counts, watch = Counts(), LoopWatch(clock=parts.clock)
    latest = LatestReport(clock=parts.clock, blocked=watch.blocked)
    routes = Router(config=parts.config, group=parts.topics.group, jitter=random.random)
    accounts = Accounts(
        config=parts.config,
        naming=routes.naming,
        connect=lambda base_url, api_key, headers: ChatClient(
            base_url=base_url, api_key=api_key, headers=headers
        ),
    )
    locks, beats = agent_locks(parts), beat_database(parts)
    role = " (rehearsal LLM)" if rehearsal else ""
    heartbeat = make_heartbeat(parts, beats, latest.json, locks, role)
    beating = HeartbeatThread(heartbeat, parts.transactions.executor)
    ids = TopicIds(family=parts.family, clock=parts.clock, stored=await parts.family.require())
    for line in await parts.family.lane_advice():
        log.warning("%s", line, extra={"code": Code.TOPICS_OLD})
    metrics = _metrics(parts, counts, heartbeat, watch)
    board, grant_store = make_board(parts), make_grant_store(parts)
    progress = Progress(
        transactions=parts.transactions,
        group=parts.topics.group,
        clock=parts.clock,
        counts=counts,
        latest=latest,
        own=lambda: heartbeat.current.agent_id,
        priced=frozenset(parts.config.prices),
        tell=tell,
        first=number == 1,
    )
    async with AsyncExitStack() as closing:  # closes every part, even after an error
        for executor in (reading, writing, settle, claim):
            closing.callback(executor.close)
        closing.callback(child.close)
        closing.callback(starting.close)
        closing.callback(retaining.close)
        closing.push_async_callback(starter.close)
        closing.push_async_callback(converters.close)
        closing.callback(parts.transactions.database.abandon)
        for shared in (board, grant_store):
            if shared is not None:
                closing.push_async_callback(shared.close)
        closing.push_async_callback(accounts.close)
        closing.callback(beats.close)
        reply_limit_bytes = await parts.transactions.read(queries.reply_limit_bytes)
        chosen = Chosen(
            parts=parts,
            limits=Limits(),
            sources={
                destination: make_source(parts, destination, ids)
                for destination in (*DESTINATIONS, *parts.topics.tier_destinations)
            },
            inbox=make_source(parts, "inbox", ids) if parts.config.inbox.enabled else None,
            executors=Executors(claim=claim, settle=settle, background=parts.transactions.executor),
            reading=reading,
            outputs=OutputStores(
                executor=writing, objects=ObjectStores(), allow=parts.config.document_allow
            ),
            apart=child,
            jitter=random.random,
            counts=counts,
            routes=routes,
            accounts=accounts,
            heartbeat=heartbeat,
            locks=locks,
            reply_limit_bytes=reply_limit_bytes,
            duties=(
                *_duties(parts, progress, routes, ids, board),
                *retention_rounds(parts, retaining),
            ),
            membership=beating,
            form=_form(parts.config, rehearsal=rehearsal),
            latest=latest,
            processes=processes,
            converters=converters,
            watch=watch,
            grant_store=grant_store,
            metrics=metrics,
            rereading=Rereading(
                load=(lambda: _rehearsed(load())) if rehearsal else load,
                form=partial(_form, rehearsal=rehearsal),
                request=reread,
            ),
        )
        made = agent(chosen)
        address = parts.config.agent.http
        if metrics is not None and address is not None:
            health = Health(
                beats=lambda: not beating.has_ended,
                leases=heartbeat,
                latest=latest,
                clock=parts.clock,
            )
            closing.callback(_serve(parts.config, address, health.pages(metrics), number).close)
        # An agent that cannot be built, as with a broken handler, must not look alive.
        await heartbeat.register()
        beating.start()
        yield made, progress


def _metrics(
    parts: Parts, counts: Counts, heartbeat: Heartbeat, watch: LoopWatch
) -> AgentMetrics | None:
    """Return the agent's metrics; None if nobody can read them."""
    if parts.config.agent.http is None:
        return None
    return AgentMetrics(
        group=parts.topics.group,
        routes=configured_routes(parts.config),
        counters=(
            (
                "docllm_fenced",
                "Outcomes that came too late: another agent had taken the task.",
                lambda: counts.fenced,
            ),
            (
                "docllm_leases_lost",
                "How often this agent was silent for too long, and went on as a new one.",
                lambda: heartbeat.losses,
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
                "How long the event loop took to answer lately.",
                lambda: watch.lag_s,
            ),
        ),
    )


def _serve(
    config: Config, address: Address, pages: Mapping[str, HttpPage], number: int
) -> HttpServer:
    """Serve an agent's HTTP pages.

    Agent N of a parent listens on the configured port plus N - 1.
    """
    if address.port:
        address = replace(address, port=address.port + number - 1)
    server = HttpServer(address=address, pages=pages, token=config.http_token)
    log.info("health and metrics: http://%s", replace(address, port=server.port))
    return server


def _converters() -> int:
    """Return how many documents are converted concurrently; conversion is bound by the CPU."""
    return min(os.cpu_count() or 1, _MOST_CONVERTERS)


def _form(config: Config, *, rehearsal: bool) -> AgentReport:
    """Return the part of the agent's report that never changes: versions and settings."""
    if rehearsal:  # each rehearsal LLM has an address of its own
        config = replace(config, llm=replace(config.llm, base_url=None))
    return AgentReport(
        types=tuple(sorted(config.known_types)),
        settings=settings_digest(config),
        program=VERSION,
        revision=migrations.own_revision(),
    )


def _duties(
    parts: Parts, progress: Progress, routes: Router, ids: TopicIds, board: Board | None
) -> list[Round]:
    """Return the duties that only a real agent has, besides those that `wiring` gives it."""
    duties = [ids.run, progress.run, data_folder(parts).run]
    if board is not None:
        sharing = BoardSync(routes=routes, board=board, clock=parts.clock, jitter=random.random)
        duties.append(sharing.run)
    return duties


def _rehearsed(config: Config) -> Config:
    """Remove every route's address, key and headers, so that no route can reach a provider."""
    return replace(
        config,
        routes={
            name: replace(route, base_url=None, api_key=None, headers=None, structured=None)
            for name, route in config.routes.items()
        },
    )


@asynccontextmanager
async def reaper(parts: Parts) -> AsyncIterator[Reaper]:
    """Build a reaper that runs no tasks."""
    known = await parts.family.require()
    locks, beats, child = agent_locks(parts), beat_database(parts), ChildExecutor()
    heartbeat = make_heartbeat(parts, beats, str, locks, REAPER)
    await heartbeat.register()
    beating = HeartbeatThread(heartbeat, parts.transactions.executor)
    relay, retaining = make_relay(parts), ThreadExecutor("retention")
    repairing = repair_rounds(
        parts,
        relay=relay,
        applier=make_applier(parts, relay=relay, apart=child, failed=lambda _error: None),
        heartbeat=heartbeat,
        locks=locks,
        lost_records=asyncio.Event(),
        ask_about_tasks_of=lambda _gone: None,
        ask_about_batches=lambda _batches: None,
        partitions=(),
    )
    beating.start()
    ids = TopicIds(family=parts.family, clock=parts.clock, stored=known)
    try:
        yield Reaper(
            duties=(
                *repairing,
                *retention_rounds(parts, retaining),
                ids.run,
                data_folder(parts).run,
            ),
            membership=beating,
        )
    finally:
        child.close()
        retaining.close()
        beats.close()


def describe(parts: Parts) -> str:
    """Return the first log line of an agent, which names its ledger and its bus."""
    config = parts.config
    inbox = (
        ""
        if config.inbox.enabled
        else f"; {parts.topics.name('inbox')} is not read: inbox.enabled is false"
    )
    if config.embedded:
        return (
            "embedded, single node, for up to some hundred thousand tasks; "
            f"data in {config.data_dir.resolve()}{inbox}"
        )
    return f"Kafka {config.kafka.bootstrap}, ledger {parts.transactions.database.where}{inbox}"

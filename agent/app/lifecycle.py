"""The life of one agent or repair agent: it is opened, built, registered and closed."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from docllm.agent.agent import Agent, RepairAgent
from docllm.agent.app.opening import (
    AgentResources,
    beat_database,
    data_folder,
    life_locks,
    make_handles,
    make_heartbeat,
    open_resources,
)
from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.ledger.settlements.reply_limit import reply_limit_bytes
from docllm.agent.maintenance.duty import DutyLoop
from docllm.agent.maintenance.monitoring.loop_watch import LoopWatch
from docllm.agent.maintenance.monitoring.topic_settings import TopicSettings
from docllm.agent.maintenance.rounds import repair_loops
from docllm.agent.membership.heartbeat import Heartbeat, HeartbeatThread
from docllm.agent.process.child_executor import ChildExecutor
from docllm.agent.reporting.latest_report import LatestReport
from docllm.agent.reporting.progress import Progress
from docllm.agent.reporting.telemetry import Counts
from docllm.agent.routes.sharing.sync import BoardSync
from docllm.agent.wiring.agent import make_agent
from docllm.agent.wiring.choices import AgentChoices, Instruments
from docllm.agent.wiring.live_settings import Rereading
from docllm.agent.wiring.retention import make_retention_loops
from docllm.producer.app import Parts, make_relay
from docllm.producer.ledger.status.agent_status import REAPER
from docllm.producer.replay.applier import make_applier
from docllm.schemas.agent_report import AgentReport
from docllm.schemas.ledger import migrations
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.digest import settings_digest
from docllm.schemas.settings.rereading import RereadRequest
from docllm.schemas.settings.routing import configured_routes
from docllm.schemas.version import VERSION

if TYPE_CHECKING:  # an agent without [agent] http has neither metrics nor a server
    from docllm.agent.reporting.metrics import AgentMetrics

log = logging.getLogger(__name__)


@asynccontextmanager
async def registered_agent(
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
    ids = await _known_topics(parts)
    instruments = _instruments(parts, rehearsal=rehearsal)
    async with AsyncExitStack() as closing:  # closes every part, even after an error
        resources = open_resources(parts, instruments.latest, closing, rehearsal=rehearsal)
        metrics = _metrics(parts, instruments, resources.heartbeat)
        instruments = replace(instruments, metrics=metrics)
        progress = _progress(parts, instruments, resources, tell, first=number == 1)
        choices = AgentChoices(
            parts=parts,
            limits=InFlightLimits(),
            handles=make_handles(parts, ids),
            workers=resources.workers,
            outputs=resources.outputs,
            providers=resources.providers,
            registration=resources.registration,
            instruments=instruments,
            reply_limit_bytes=await parts.transactions.read(reply_limit_bytes),
            jitter=random.random,
            duties=_duties(parts, resources, progress, ids, instruments.counts),
            rereading=_rereading(load, reread, rehearsal=rehearsal),
        )
        agent = make_agent(choices)
        if metrics is not None:
            _serve(parts, resources, instruments, metrics, closing, number)
        # An agent that cannot be built, as with a broken handler, must not look alive.
        await resources.beating.register()
        resources.beating.start()
        yield agent, progress


async def _known_topics(parts: Parts) -> StoredIdsReader:
    """Return the group's topics. Raises an error that says what is missing."""
    return StoredIdsReader(
        family=parts.family, clock=parts.clock, stored=await parts.family.require()
    )


def _instruments(parts: Parts, *, rehearsal: bool) -> Instruments:
    watch = LoopWatch(clock=parts.clock)
    return Instruments(
        counts=Counts(),
        latest=LatestReport(clock=parts.clock, blocked=watch.blocked),
        form=_form(parts.config, rehearsal=rehearsal),
        watch=watch,
    )


def _progress(
    parts: Parts,
    instruments: Instruments,
    resources: AgentResources,
    tell: Callable[[bytes], None] | None,
    *,
    first: bool,
) -> Progress:
    return Progress(
        transactions=parts.transactions,
        group=parts.topics.group,
        clock=parts.clock,
        counts=instruments.counts,
        latest=instruments.latest,
        own=lambda: resources.heartbeat.current.agent_id,
        priced=frozenset(parts.config.prices),
        tell=tell,
        first=first,
    )


def _metrics(parts: Parts, instruments: Instruments, heartbeat: Heartbeat) -> "AgentMetrics | None":
    """Return the agent's metrics; None if nobody can read them."""
    counts, watch = instruments.counts, instruments.watch
    if parts.config.agent.http is None:
        return None
    from docllm.agent.reporting.metrics import AgentMetrics  # noqa: PLC0415 - see above

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
                lambda: 0.0 if watch is None else watch.lag_s,
            ),
        ),
        odd_answers=counts.odd_answers.counts,
    )


def _serve(
    parts: Parts,
    resources: AgentResources,
    instruments: Instruments,
    metrics: "AgentMetrics",
    closing: AsyncExitStack,
    number: int,
) -> None:
    """Serve an agent's HTTP pages.

    Agent N of a parent listens on the configured port plus N - 1.
    """
    address = parts.config.agent.http
    if address is None:
        return
    from docllm.agent.reporting.health import Health  # noqa: PLC0415 - see above
    from docllm.producer.metrics.http_server import HttpServer  # noqa: PLC0415

    if address.port:
        address = replace(address, port=address.port + number - 1)
    health = Health(
        beats=lambda: not resources.beating.has_ended,
        leases=resources.heartbeat,
        latest=instruments.latest,
        clock=parts.clock,
    )
    server = HttpServer(address=address, pages=health.pages(metrics), token=parts.config.http_token)
    closing.callback(server.close)
    log.info("health and metrics: http://%s", replace(address, port=server.port))


def _rereading(load: Callable[[], Config], reread: RereadRequest, *, rehearsal: bool) -> Rereading:
    return Rereading(
        load=(lambda: _rehearsed(load())) if rehearsal else load,
        form=partial(_form, rehearsal=rehearsal),
        request=reread,
    )


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
    parts: Parts,
    resources: AgentResources,
    progress: Progress,
    ids: StoredIdsReader,
    counts: Counts,
) -> list[DutyLoop]:
    """Return the duties that only a real agent has, besides those that `wiring` gives it."""
    duties = [ids.run, progress.run, data_folder(parts).run]
    if not parts.config.embedded:  # nobody else can change embedded topics
        settings = TopicSettings(
            family=parts.family,
            counts=counts,
            clock=parts.clock,
            kafka=parts.kafka,
            group=parts.topics.group,
        )
        duties.append(settings.run)
    if resources.board is not None:
        sharing = BoardSync(
            routes=resources.providers.routes,
            board=resources.board,
            clock=parts.clock,
            jitter=random.random,
        )
        duties.append(sharing.run)
    return [*duties, *make_retention_loops(parts, resources.retaining)]


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
async def registered_repair_agent(parts: Parts) -> AsyncIterator[RepairAgent]:
    """Build a repair agent, register it and start its heartbeat; close everything at the end."""
    ids = StoredIdsReader(
        family=parts.family, clock=parts.clock, stored=await parts.family.require()
    )
    async with AsyncExitStack() as closing:
        beats, retaining = beat_database(parts), ThreadExecutor("retention")
        locks, relay, child = life_locks(parts), make_relay(parts), ChildExecutor()
        for opened in (beats, retaining, child):
            closing.callback(opened.close)
        heartbeat = make_heartbeat(parts, beats, str, locks, REAPER)
        repairing = repair_loops(
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
        retention = make_retention_loops(parts, retaining)
        beating = HeartbeatThread(heartbeat, executor=parts.transactions.executor)
        await beating.register()  # last: an agent that cannot be built must not look alive
        beating.start()
        yield RepairAgent(
            duties=(*repairing, *retention, ids.run, data_folder(parts).run), membership=beating
        )


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

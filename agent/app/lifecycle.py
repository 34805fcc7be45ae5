"""The life of one agent or repair agent: it is opened, built, registered and closed."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

from docllm.agent.agent import Agent, RepairAgent
from docllm.agent.app.opening import (
    beat_database,
    data_folder_watch,
    life_locks,
    make_heartbeat,
    open_choices,
)
from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.ledger.sql_ledger import reply_limit_bytes
from docllm.agent.maintenance.rounds import repair_loops
from docllm.agent.membership.heartbeat import HeartbeatThread
from docllm.agent.process.child_executor import ChildExecutor
from docllm.agent.reporting.progress import Progress
from docllm.agent.wiring.agent import make_agent
from docllm.agent.wiring.choices import AgentChoices, Rereading
from docllm.agent.wiring.group_rules import store_group_rules
from docllm.agent.wiring.retention import make_retention_loops
from docllm.producer.app import Parts, make_relay, until_up
from docllm.producer.ledger.status.agent_status import REAPER
from docllm.producer.replay.applier import make_applier
from docllm.schemas.agent_report import AgentReport
from docllm.schemas.errors import UnreachableError
from docllm.schemas.ledger import migrations
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.settings.changes import settings_digest
from docllm.schemas.settings.config import Config
from docllm.schemas.version import VERSION

log = logging.getLogger(__name__)

_REDIS_S = 2.0  # for one try


@asynccontextmanager
async def registered_agent(
    parts: Parts,
    *,
    rehearsal: bool,
    load: Callable[[], Config],
    reread: asyncio.Event,
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
    await _until_redis_is_up(parts)
    async with AsyncExitStack() as closing:  # closes every part, even after an error
        choices, beating = open_choices(
            parts,
            ids,
            closing,
            rehearsal=rehearsal,
            form=_form(parts.config, rehearsal=rehearsal),
            reply_limit_bytes=await parts.transactions.read(reply_limit_bytes),
            rereading=_rereading(load, reread, rehearsal=rehearsal),
        )
        progress = _progress(choices, tell, first=number == 1)
        agent = make_agent(replace(choices, duties=(*choices.duties, progress.run)))
        _serve(choices, beating, closing, number)
        await store_group_rules(parts, parts.config)
        # An agent that cannot be built, as with a broken handler, must not look alive.
        await beating.register()
        beating.start()
        yield agent, progress


async def _until_redis_is_up(parts: Parts) -> None:
    """Give Redis the time of `--wait`; without Redis an agent works with its share of limits."""
    url, clock = parts.config.redis_url, parts.clock
    if url is None or parts.config.up_by_s <= clock.now_s():
        return
    from docllm.schemas.clients.redis import ping  # noqa: PLC0415 - only with Redis

    with suppress(UnreachableError):  # the first exchange says it
        await until_up("Redis", lambda: ping(url, timeout_s=_REDIS_S), parts.config)


async def _known_topics(parts: Parts) -> StoredIdsReader:
    """Return the group's topics. Raises an error that says what is missing."""
    return StoredIdsReader(
        family=parts.family, clock=parts.clock, stored=await parts.family.require()
    )


def _progress(
    choices: AgentChoices, tell: Callable[[bytes], None] | None, *, first: bool
) -> Progress:
    parts, heartbeat = choices.parts, choices.heartbeat
    return Progress(
        transactions=parts.transactions,
        group=parts.topics.group,
        clock=parts.clock,
        counts=choices.counts,
        latest=choices.latest,
        own=lambda: heartbeat.current.agent_id,
        tiers_of=parts.config.tiers_of,
        priced=frozenset(parts.config.prices),
        tell=tell,
        first=first,
    )


def _serve(
    choices: AgentChoices, beating: HeartbeatThread, closing: AsyncExitStack, number: int
) -> None:
    """Serve an agent's HTTP pages.

    Agent N of a parent listens on the configured port plus N - 1.
    """
    config, metrics = choices.parts.config, choices.metrics
    address = config.agent.http
    if address is None or metrics is None:
        return
    # An agent without [agent] http has neither metrics nor a server.
    from docllm.agent.reporting.health import Health  # noqa: PLC0415
    from docllm.producer.metrics.http_server import HttpServer  # noqa: PLC0415

    if address.port:
        address = replace(address, port=address.port + number - 1)
    health = Health(
        beats=lambda: not beating.has_ended,
        leases=choices.heartbeat,
        latest=choices.latest,
        clock=choices.parts.clock,
    )
    server = HttpServer(address=address, pages=health.pages(metrics), token=config.http_token)
    closing.callback(server.close)
    log.info("health and metrics: http://%s", replace(address, port=server.port))


def _rereading(load: Callable[[], Config], reread: asyncio.Event, *, rehearsal: bool) -> Rereading:
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
    ids = await _known_topics(parts)
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
            resets=Counter(),
        )
        retention = make_retention_loops(parts, retaining)
        beating = HeartbeatThread(heartbeat, executor=parts.transactions.executor)
        await beating.register()  # last: an agent that cannot be built must not look alive
        beating.start()
        yield RepairAgent(
            duties=(*repairing, *retention, ids.run, data_folder_watch(parts)), membership=beating
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

"""Builds the parts of one agent from database, bus, executors and clock.

A simulation passes its own versions of these.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from agent.agent import Agent, Finished
from agent.consumer.known_topics import TopicIds
from agent.dispatch.dispatcher import Dispatcher
from agent.execution.guard_gate import GuardGate
from agent.execution.publishing import Publishing
from agent.execution.settler import Ended, Settler
from agent.execution.slots import Slots
from agent.execution.worker import Worker
from agent.handlers import Documents, Handlers, registry
from agent.handlers.context import Tools
from agent.inflight.decoder import RecordDecoder
from agent.inflight.limits import Limits
from agent.inflight.partitions import Partitions
from agent.intake import Intake
from agent.judge import Effect, tiers_of
from agent.ledger import guard_probes, queries
from agent.ledger.sql_ledger import Executors, SqlLedger
from agent.maintenance.guard_keeper import GuardKeeper
from agent.maintenance.reaper import Reaper, Sweep
from agent.maintenance.resume_listener import ResumeListener
from agent.maintenance.route_call_up import RouteCallUp
from agent.membership.heartbeat import Heartbeat
from agent.membership.locks import AgentLocks
from agent.ports import Source
from agent.process.containment import MemoryWatch
from agent.process.failures import Failures
from agent.reporting.progress import Progress
from agent.reporting.telemetry import Counts, told_dead
from agent.routes import Router, route_of
from agent.routes.accounts import Accounts, Connect
from agent.routes.probe_sender import ProbeSender
from producer.app import Parts
from producer.bus.topic_family import StoredIds
from producer.input.excluded_files import own_files
from producer.ledger import dead_letters, outbox, status, store
from producer.relay.relay import Relay
from schemas.errors import UnreachableError
from schemas.runtime.executors import Executor

DEADLINE_MARGIN_S = 60.0
PROMPT_S = 60.0


class Builder:
    """Builds the parts of one agent in their order: each part takes the parts made before it."""

    def __init__(
        self,
        *,
        parts: Parts,
        limits: Limits,
        known: StoredIds,
        connect: Connect,
        executors: Executors,
        reading: Executor,
        apart: Executor,
        jitter: Callable[[], float],
        locks: AgentLocks | None,
        heartbeat: Callable[[Callable[[], str]], Heartbeat],
    ) -> None:
        self.parts, self.clock, config = parts, parts.clock, parts.config
        self._limits = limits
        self.counts, self.routes = (
            Counts(),
            Router(config=config, group=parts.topics.group, jitter=jitter),
        )
        self.accounts = Accounts(config=config, naming=self.routes.naming, connect=connect)
        self.prober = ProbeSender(routes=self.routes, accounts=self.accounts, clock=self.clock)
        self.deadline_s = self.routes.longest_timeout_s + DEADLINE_MARGIN_S
        self.locks, self._apart = locks, apart
        self.heartbeat = heartbeat(self._notice)
        self.ids = TopicIds(family=parts.family, clock=self.clock, known=known)
        self.relay = Relay(
            transactions=parts.transactions,
            publisher=parts.publisher,
            topics=parts.topics,
            clock=self.clock,
        )
        self.publishing = Publishing(self.relay)
        self.failures = Failures()
        self.sweep = Sweep(config.agent.sweep_slack_s, asyncio.Event())
        self.longest_tier = tiers_of(parts.topics.tiers)[-1]
        self.memory = MemoryWatch(self.clock)
        self.ledger = SqlLedger(
            database=parts.transactions.database,
            group=parts.topics.group,
            clock=self.clock,
            executors=executors,
            longest_tier=self.longest_tier,
        )
        self.guards = GuardGate(
            clock=self.clock, longest_tier=self.longest_tier, take_turn=self._take_turn
        )
        self.guarding = self._guarding()
        tools = Tools(
            account=self.accounts,
            documents=Documents(roots=config.roots(), own=own_files(config), executor=reading),
            clock=self.clock,
            apart=apart,
            jitter=jitter,
            prices=config.prices,
            tiers=tiers_of(config.retry_tiers),
            types=config.types,
            failed=self.memory.note,
        )
        handlers = Handlers(tools=tools, by_type=registry.load(config.types))
        self.worker = Worker(handlers=handlers, clock=self.clock, deadline_s=self.deadline_s)

    def _notice(self) -> str:
        self.counts.say("route", self.routes.notice(self.clock.now_s()))
        return self.counts.notice()

    async def _take_turn(self, guard_id: int, task_id: int) -> bool:
        return await self.parts.transactions.write(guard_probes.take_turn, guard_id, task_id)

    def _guarding(self) -> GuardKeeper:
        async def ask(route: str) -> bool:
            return (await self.prober.ask(route, PROMPT_S)).effect is Effect.UP

        return GuardKeeper(
            transactions=self.parts.transactions,
            clock=self.clock,
            group=self.parts.topics.group,
            guards=self.guards,
            probe_s=self.parts.config.guard.probe_s,
            ask=ask,
            route_of=lambda value: route_of(value, self.routes.naming),
            publishing=self.publishing,
        )

    def _resuming(self) -> ResumeListener:
        def resumed(route: str) -> bool:
            return self.routes.resume(route, self.clock.now_s())

        group = self.parts.topics.group
        return ResumeListener(
            transactions=self.parts.transactions,
            clock=self.clock,
            group=group,
            resumed=resumed,
        )

    def _calling_up(self) -> RouteCallUp:
        return RouteCallUp(
            transactions=self.parts.transactions,
            clock=self.clock,
            group=self.parts.topics.group,
            routes=self.routes,
            publishing=self.publishing,
        )

    def settler(
        self, reply_limit_bytes: int, settled: Callable[[Sequence[Ended]], None]
    ) -> Settler:
        """Return the settler."""
        limits = self._limits
        size = limits.sqlite_group if self.parts.transactions.database.sqlite else limits.group
        return Settler(
            ledger=self.ledger,
            group_size=size,
            group_bytes=limits.group_bytes,
            reply_limit_bytes=reply_limit_bytes,
            clock=self.clock,
            settled=settled,
            publishing=self.publishing,
        )

    def slots(self, settler: Settler, freed: Callable[[], None]) -> Slots:
        """Return the slots."""
        return Slots(
            size=self.parts.config.agent.slots,
            worker=self.worker,
            settler=settler,
            routes=self.routes,
            guards=self.guards,
            longest_tier=self.longest_tier,
            clock=self.clock,
            counts=self.counts,
            memory=self.memory,
            freed=freed,
        )

    def loop(self, slots: Slots, sources: Mapping[str, Source]) -> Dispatcher:
        """Return the loop over the main topic and the tiers."""
        topics = self.parts.topics
        return Dispatcher(
            partitions=Partitions(
                {topics.name(destination): source for destination, source in sources.items()},
                limits=self._limits,
            ),
            main_topic=topics.name("tasks"),
            arrivals=RecordDecoder(
                ledger_id=self.parts.ledger_id, group=topics.group, naming=self.routes.naming
            ),
            ledger=self.ledger,
            slots=slots,
            clock=self.clock,
            counts=self.counts,
            lease=lambda: self.heartbeat.current,
            deadline_s=self.deadline_s,
            publishing=self.publishing,
            lost_records=self.sweep.wanted,
            failures=self.failures,
            limits=self._limits,
        )

    def intake(self, inbox: Source | None) -> Intake:
        """Return the intake over the inbox; without a source, it has nothing to do."""
        return Intake(
            partitions=Partitions(
                {self.parts.topics.name("inbox"): inbox} if inbox is not None else {},
                limits=self._limits,
            ),
            transactions=self.parts.transactions,
            apart=self._apart,
            clock=self.clock,
            counts=self.counts,
            group=self.parts.topics.group,
            max_attempts_of=self.parts.config.max_attempts_of,
            publishing=self.publishing,
            failures=self.failures,
            memory=self.memory,
            limits=self._limits,
        )

    def reaper(self, loop: Dispatcher, intake: Intake) -> Reaper:
        """Return the reaper."""
        return Reaper(
            transactions=self.parts.transactions,
            clock=self.clock,
            topics=self.parts.topics,
            admin=self.parts.admin,
            relay=self.relay,
            heartbeat=self.heartbeat,
            locks=self.locks,
            sweep=self.sweep,
            agents_gone=loop.agents_gone,
            finished=lambda: loop.finished() | intake.finished(),
            kafka=self.parts.kafka,
        )

    def progress(self) -> Progress:
        """Return the progress display of the group."""
        group = self.parts.topics.group
        return Progress(
            read=partial(self.parts.transactions.read, status.read, group),
            clock=self.clock,
            summary=self.counts.summary,
            notice=self.counts.notice,
            deaths=lambda: self.counts.deaths.news(group),
        )

    def finished(self) -> Finished:
        """Return the queries that decide whether the group's work is done."""
        read, group = self.parts.transactions.read, self.parts.topics.group

        async def orders() -> int:
            await self.relay.drop_settled()
            return (await read(outbox.waiting, group))[0]

        async def any_work() -> bool:
            if await read(queries.any_batch, group):
                return True
            if not self.parts.config.inbox.enabled:
                return False
            topics = self.parts.topics
            try:
                return (
                    await self.parts.admin.backlog(
                        topics.consumer_group("inbox"), [topics.name("inbox")]
                    )
                ).lag > 0
            except UnreachableError:
                return True  # an agent that cannot tell does not leave

        async def notes() -> list[str]:
            half_loaded = await read(store.half_loaded, group)
            batches = (await read(status.read, group)).batches
            dead = {batch.name: batch.counts["dead"] for batch in batches}
            return [*map(store.told_half_loaded, half_loaded), *told_dead(group, dead)]

        return Finished(
            open_tasks=partial(read, queries.open_tasks, group),
            orders=orders,
            any_work=any_work,
            notes=notes,
            any_dead=partial(read, dead_letters.any_dead, group),
        )

    def agent(
        self,
        *,
        work: Mapping[str, Source],
        inbox: Source | None,
        reply_limit_bytes: int,
        duties: Sequence[Callable[[], Coroutine[Any, Any, None]]],
        leave: Callable[[], Awaitable[None]],
    ) -> Agent:
        """Return the agent.

        `work` holds the sources of tasks, by destination. Without an `inbox`, this agent does not
        read the inbox.

        Loop, slots and settler form a ring, because settled tasks go back to the loop. The loop is
        made last.
        """

        def settled(group: Sequence[Ended]) -> None:
            loop.settled(group)

        def freed() -> None:
            loop.wake()

        settler = self.settler(reply_limit_bytes, settled)
        slots = self.slots(settler, freed)
        loop = self.loop(slots, work)
        intake = self.intake(inbox)
        return Agent(
            loop=loop,
            slots=slots,
            settler=settler,
            intake=intake,
            sources=[
                *((source, loop.deliver) for source in work.values()),
                *([(inbox, intake.deliver)] if inbox is not None else []),
            ],
            reaper=self.reaper(loop, intake),
            publishing=self.publishing,
            failures=self.failures,
            finished=self.finished(),
            duties=(
                *duties,
                self.guarding.run,
                self.prober.run,
                self._resuming().run,
                self._calling_up().run,
                self.memory.run,
            ),
            clock=self.clock,
            counts=self.counts,
            leave=leave,
        )

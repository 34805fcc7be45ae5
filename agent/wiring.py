"""Builds the parts of one agent from database, bus, executors and clock.

A simulation passes its own versions of these.

Tested by tests/unit/agent/dispatch/test_dispatcher.py and tests/simulation/test_simulation.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agent.agent import Agent, Finished
from agent.consumer.known_topics import TopicIds
from agent.dispatch.answers import AnswerHandler
from agent.dispatch.backpressure import Backpressure
from agent.dispatch.body_loader import BodyLoader
from agent.dispatch.claimer import Claimer
from agent.dispatch.dispatcher import Dispatcher
from agent.dispatch.head_of_line import HeadOfLine
from agent.dispatch.quarantine_queue import QuarantineQueue
from agent.dispatch.records import Records, Wakeups
from agent.dispatch.route_shelving import RouteShelving
from agent.dispatch.ticker import Ticker
from agent.execution.admission import Admission
from agent.execution.crash_suspects import CrashSuspects
from agent.execution.guard_gate import GuardGate
from agent.execution.publishing import Publishing
from agent.execution.settler import Settler
from agent.execution.slots import Slots
from agent.execution.worker import Worker
from agent.handlers import Documents, Handlers, registry
from agent.handlers.context import Tools
from agent.inflight.decoder import RecordDecoder
from agent.inflight.limits import Limits
from agent.inflight.partitions import Partitions
from agent.inflight.table import InFlightTable
from agent.intake import Intake
from agent.judge import Effect, tiers_of
from agent.lease import Leases
from agent.ledger import guard_probes, queries
from agent.ledger.sql_ledger import Executors, SqlLedger
from agent.maintenance import reaper
from agent.maintenance.duty import Round
from agent.maintenance.guard_keeper import GuardKeeper
from agent.maintenance.resume_listener import ResumeListener
from agent.maintenance.route_call_up import RouteCallUp
from agent.membership.heartbeat import Heartbeat
from agent.membership.locks import AgentLocks
from agent.ports import Clock, Ledger, Source
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """The parts that decide about records."""

    partitions: Partitions
    table: InFlightTable
    quarantine: QuarantineQueue
    answers: AnswerHandler
    claimer: Claimer
    dispatcher: Dispatcher
    ticker: Ticker


def dispatch(
    *,
    partitions: Partitions,
    main_topic: str,
    decoder: RecordDecoder,
    ledger: Ledger,
    admission: Admission,
    slots: Slots,
    wakeups: Wakeups,
    clock: Clock,
    counts: Counts,
    leases: Leases,
    deadline_s: float,
    publishing: Publishing,
    lost_records: asyncio.Event,
    failures: Failures,
    limits: Limits,
) -> Dispatch:
    """Build the parts that decide about records."""
    table = InFlightTable(limits=limits)
    quarantine = QuarantineQueue(
        ledger=ledger,
        partitions=partitions,
        table=table,
        counts=counts,
        publishing=publishing,
        limits=limits,
    )
    backpressure = Backpressure(
        table=table,
        partitions=partitions,
        quarantine=quarantine,
        slots=admission.slots,
        main_topic=main_topic,
        limits=limits,
    )
    records = Records(
        partitions=partitions, table=table, backpressure=backpressure, wakeups=wakeups
    )
    answers = AnswerHandler(
        partitions=partitions, table=table, quarantine=quarantine, records=records, clock=clock
    )
    claimer = Claimer(
        ledger=ledger,
        leases=leases,
        deadline_s=deadline_s,
        partitions=partitions,
        table=table,
        quarantine=quarantine,
        answers=answers,
        bodies=BodyLoader(ledger=ledger, table=table, decoder=decoder),
        admission=admission,
        slots=slots,
        records=records,
        wakeups=wakeups,
        clock=clock,
        limits=limits,
    )
    ticker = Ticker(
        shelving=RouteShelving(table=table, admission=admission, limits=limits),
        backpressure=backpressure,
        relief=HeadOfLine(
            ledger=ledger, partitions=partitions, table=table, publishing=publishing, limits=limits
        ),
        claimer=claimer,
        partitions=partitions,
        table=table,
        leases=leases,
        wakeups=wakeups,
        clock=clock,
        limits=limits,
    )
    dispatcher = Dispatcher(
        partitions=partitions,
        decoder=decoder,
        table=table,
        quarantine=quarantine,
        backpressure=backpressure,
        records=records,
        wakeups=wakeups,
        clock=clock,
        counts=counts,
        lost_records=lost_records,
        failures=failures,
    )
    return Dispatch(
        partitions=partitions,
        table=table,
        quarantine=quarantine,
        answers=answers,
        claimer=claimer,
        dispatcher=dispatcher,
        ticker=ticker,
    )


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
        self.lost_records = asyncio.Event()
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

    def settler(self, reply_limit_bytes: int) -> Settler:
        """Return the settler."""
        limits = self._limits
        size = limits.sqlite_group if self.parts.transactions.database.sqlite else limits.group
        return Settler(
            ledger=self.ledger,
            group_size=size,
            group_bytes=limits.group_bytes,
            reply_limit_bytes=reply_limit_bytes,
            clock=self.clock,
            publishing=self.publishing,
        )

    def slots(
        self,
        settler: Settler,
        admission: Admission,
        suspects: CrashSuspects,
        freed: asyncio.Event,
    ) -> Slots:
        """Return the slots."""
        return Slots(
            admission=admission,
            suspects=suspects,
            worker=self.worker,
            settler=settler,
            guards=self.guards,
            longest_tier=self.longest_tier,
            clock=self.clock,
            counts=self.counts,
            memory=self.memory,
            freed=freed,
        )

    def dispatch(
        self, sources: Mapping[str, Source], admission: Admission, slots: Slots, wakeups: Wakeups
    ) -> Dispatch:
        """Return the parts that decide about the records of the main topic and the tiers."""
        topics = self.parts.topics
        return dispatch(
            partitions=Partitions(
                {topics.name(destination): source for destination, source in sources.items()},
                limits=self._limits,
            ),
            main_topic=topics.name("tasks"),
            decoder=RecordDecoder(
                ledger_id=self.parts.ledger_id, group=topics.group, naming=self.routes.naming
            ),
            ledger=self.ledger,
            admission=admission,
            slots=slots,
            wakeups=wakeups,
            clock=self.clock,
            counts=self.counts,
            leases=self.heartbeat,
            deadline_s=self.deadline_s,
            publishing=self.publishing,
            lost_records=self.lost_records,
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

    def repairing(self, parts: Dispatch, intake: Intake) -> Sequence[Round]:
        """Return the rounds of the reaper."""
        return reaper.rounds(
            transactions=self.parts.transactions,
            clock=self.clock,
            topics=self.parts.topics,
            admin=self.parts.admin,
            relay=self.relay,
            heartbeat=self.heartbeat,
            locks=self.locks,
            sweep_slack_s=self.parts.config.agent.sweep_slack_s,
            lost_records=self.lost_records,
            agents_gone=parts.claimer.agents_gone,
            watermarks=lambda: parts.partitions.marked() | intake.finished(),
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
            return [*map(store.half_loaded_message, half_loaded), *told_dead(group, dead)]

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
        duties: Sequence[Round],
        leave: Callable[[], Awaitable[None]],
    ) -> Agent:
        """Return the agent.

        `work` holds the sources of tasks, by destination. Without an `inbox`, this agent does not
        read the inbox.
        """
        wakeups = Wakeups()
        settler = self.settler(reply_limit_bytes)
        suspects = CrashSuspects(counts=self.counts)
        admission = Admission(
            slots=self.parts.config.agent.slots,
            leases=self.heartbeat,
            routes=self.routes,
            guards=self.guards,
            suspects=suspects,
            settler=settler,
            clock=self.clock,
        )
        slots = self.slots(settler, admission, suspects, freed=wakeups.claim)
        parts = self.dispatch(work, admission, slots, wakeups)
        intake = self.intake(inbox)
        return Agent(
            dispatcher=parts.dispatcher,
            claimer=parts.claimer,
            ticker=parts.ticker,
            admission=admission,
            slots=slots,
            settler=settler,
            intake=intake,
            sources=[
                *((source, parts.dispatcher.deliver) for source in work.values()),
                *([(inbox, intake.deliver)] if inbox is not None else []),
            ],
            publishing=self.publishing,
            failures=self.failures,
            finished=self.finished(),
            duties=(
                *self.repairing(parts, intake),
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

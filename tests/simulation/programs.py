"""The long-running programs of a run, made of the product's own parts.

These are agents, as `docllm.agent.app` builds them, and the loader.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from docllm.agent.app.opening import SETTLES_AT_ONCE
from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.documents.conversion.converters import Converters
from docllm.agent.handlers.processes.pool import HandlerProcesses
from docllm.agent.ledger.sql_ledger import Executors
from docllm.agent.membership.heartbeat import Heartbeat
from docllm.agent.process.stop_request import StopRequest
from docllm.agent.reporting.latest_report import LatestReport
from docllm.agent.reporting.telemetry import Counts
from docllm.agent.routes import Router
from docllm.agent.routes.clients import RouteClients
from docllm.agent.wiring.agent import make_agent
from docllm.agent.wiring.choices import AgentChoices
from docllm.agent.wiring.group_rules import store_group_rules
from docllm.producer.app import Parts
from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.producer.ledger import store
from docllm.producer.ledger.batch_options import TaskDefaults
from docllm.producer.loading.loader import make_loader
from docllm.schemas.agent_report import AgentReport
from docllm.schemas.ledger.migrations import own_revision
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.record.lanes import DESTINATIONS
from tests.invariants.happened import HandlerRun, LockUse, Use
from tests.simulation.bus import SimSource
from tests.simulation.eventloop import Process, VirtualClock
from tests.simulation.handlers import HOST, Host
from tests.simulation.machine import BATCH, DRAIN_S, GROUP, LATER, Machine, knows_later
from tests.simulation.processes import starter

Result = TypeVar("Result")
REPLY_LIMIT_BYTES = 2500


class Program:
    """A program that runs until it ends or is killed."""

    def __init__(self, machine: Machine, name: str, work: Coroutine[Any, Any, None]) -> None:
        self.name = name
        self.killed = False
        self.began_s = machine.loop.time()
        self.ended_s: float | None = None
        self._machine = machine
        self.main = Process(name, self.kill)
        self.task = machine.loop.spawn(self.main, work)
        self.task.add_done_callback(lambda _task: self._end())

    @property
    def running(self) -> bool:
        """Return whether the program exists, frozen or not."""
        return not self.killed and not self.task.done()

    @property
    def error(self) -> BaseException | None:
        """Return the error that ended it."""
        return self.task.exception() if self.task.done() and not self.task.cancelled() else None

    def kill(self) -> None:
        """End it as SIGKILL would."""
        if not self.task.done():
            self.killed = True
            self._end()

    def _end(self) -> None:
        if self.ended_s is None:
            self.ended_s = self._machine.loop.time()
        self.main.alive = False


@dataclass(frozen=True, slots=True)
class _Membership:
    """Leaves in the heartbeat's process: a stalled main loop does not keep it from that."""

    machine: Machine
    process: Process
    heartbeat: Heartbeat
    beating: "asyncio.Task[None]"

    async def leave(self) -> None:
        await self.machine.loop.spawn(self.process, self._stop())

    async def _stop(self) -> None:
        self.beating.cancel()
        await asyncio.wait([self.beating])
        await self.heartbeat.stop()


class AgentProgram(Program):
    """One agent: its main loop, and its heartbeat as a thread that can stall separately."""

    def __init__(self, machine: Machine, name: str, *, good: Callable[[], bool]) -> None:
        self.beat = Process(f"{name}.beat", self.kill)
        self.asked_s: float | None = None
        self._beats_from_s = float("inf")
        self.leases: set[int] = set()
        self.counts = Counts()
        self.clock: VirtualClock | None = None
        self.sources: list[SimSource] = []
        self.lane_sources: list[SimSource] = []
        self._stop = StopRequest()
        self._good = good
        self.types: dict[str, TypeConfig] = {}
        self._narrow = 0
        super().__init__(machine, name, self._run())

    def stop(self) -> None:
        """Ask it to leave, as SIGTERM does."""
        self.asked_s = self._machine.loop.time() if self.asked_s is None else self.asked_s
        self._stop.signal()

    def _end(self) -> None:
        super()._end()
        self.beat.alive = False

    @property
    def beat_stops(self) -> list[list[float]]:
        """Return the intervals in which its heartbeat stood still.

        Until the heartbeat has begun, it stands still with the main loop.
        """
        return [stop for stop in self.main.stops if stop[0] < self._beats_from_s] + self.beat.stops

    def learn(self) -> None:
        """Know every type, as after a restart with other settings."""
        self.types[LATER] = TypeConfig()

    def freeze(self) -> None:
        """Freeze it, as SIGSTOP would."""
        self._machine.loop.freeze(self.main)
        self._machine.loop.freeze(self.beat)

    def thaw(self) -> None:
        """Resume it."""
        self._machine.loop.thaw(self.main)
        self._machine.loop.thaw(self.beat)

    def _used(self, name: str, fence: int) -> None:
        use = LockUse(name, fence, self._machine.loop.time(), self.name)
        self._machine.lock_uses.append(use)

    def _count_narrow(self, change: int) -> None:
        self._narrow += change
        self._machine.most_narrow = max(self._machine.most_narrow, self._narrow)

    def _begin_use(self, limit: str) -> Callable[[], None]:
        use = Use(limit, self.name, self._machine.loop.time())
        self._machine.uses.append(use)

        def end() -> None:
            if self.running:
                use.end_s = self._machine.loop.time()

        return end

    def _begin_run(self, task_id: int, once: bool) -> Callable[[], None]:  # noqa: FBT001
        store = self._machine.store
        run = HandlerRun(task_id, store.turn(), once=once)
        self._machine.handler_runs.append(run)

        def end() -> None:
            if self.running:
                run.ended = store.turn()

        return end

    def _hooked(self, task_id: int, event: str) -> None:
        self._machine.hooks_run.append((task_id, event))

    def _told(self, number: int) -> None:
        self._machine.ends_told.append((self._machine.store.turn(), number))

    async def _run(self) -> None:
        HOST.set(
            Host(
                self.kill,
                self._good,
                self._used,
                self._hooked,
                told=self._told,
                at_once=self._count_narrow,
                begin_use=self._begin_use,
                begin_run=self._begin_run,
            )
        )
        machine, parts = self._machine, await self._machine.parts()
        clock = parts.clock
        assert isinstance(clock, VirtualClock)
        self.clock = clock
        self.types = parts.config.types
        if knows_later(self.name) or self._good():
            self.learn()
        self.counts = counts = Counts()
        latest = LatestReport(clock=clock)
        routes = Router(config=parts.config, group=parts.topics.group, jitter=machine.rng.random)
        route_clients = RouteClients(
            config=parts.config,
            naming=routes.naming,
            connect=lambda *_: machine.llm,
        )
        heartbeat = self._heartbeat(clock, latest.json)
        ids = StoredIdsReader(family=parts.family, clock=clock, stored=await parts.family.require())
        await store_group_rules(parts, parts.config)
        self.leases.add((await heartbeat.register()).agent_id)
        beating = machine.loop.spawn(self.beat, heartbeat.run())
        self._beats_from_s = machine.loop.time()
        names = (*DESTINATIONS, *parts.topics.tier_destinations, "inbox")
        handles = {name: machine.source(parts, name, ids) for name in names}
        self.sources = list(handles.values())
        self.lane_sources = [handles[name] for name in DESTINATIONS]
        inbox = handles.pop("inbox")
        settles = 1 if machine.sqlite else SETTLES_AT_ONCE
        made = make_agent(
            AgentChoices(
                parts=parts,
                limits=machine.limits,
                sources=handles,
                inbox=inbox,
                executors=Executors(
                    claim=machine.executor(clock),
                    settle=machine.executor(clock, threads=settles),
                    background=parts.transactions.executor,
                    settles_at_once=settles,
                ),
                reading=InlineExecutor(),
                apart=InlineExecutor(),
                processes=HandlerProcesses(
                    check=lambda _path: None, start=starter(clock), max_processes=machine.slots
                ),
                converters=Converters(thread=InlineExecutor(), max_processes=1),
                outputs=machine.outputs,
                routes=routes,
                route_clients=route_clients,
                grant_store=machine.grant_store(clock, self.name),
                heartbeat=heartbeat,
                membership=_Membership(machine, self.beat, heartbeat, beating),
                counts=counts,
                latest=latest,
                form=AgentReport(),
                reply_limit_bytes=REPLY_LIMIT_BYTES,
                jitter=machine.rng.random,
                duties=(ids.run,),
            )
        )
        await made.run(self._stop, until_done=False, drain_timeout_s=DRAIN_S)

    def _heartbeat(self, clock: VirtualClock, report: Callable[[], str]) -> Heartbeat:
        machine = self._machine
        return Heartbeat(
            transactions=Transactions(
                database=machine.database(clock), executor=machine.executor(clock, patient=False)
            ),
            clock=clock,
            name=self.name,
            group=GROUP,
            version="0",
            locks=None,
            revision=own_revision(),
            report=report,
        )


class LoaderProgram(Program):
    """`producer load`, which can be killed and started again.

    Its input is slow, so that there is work as long as there are faults.
    """

    def __init__(
        self, machine: Machine, lines: Sequence[ValidLine | InvalidLine], chunk_s: float
    ) -> None:
        self._chunk_s = chunk_s
        self._lines = lines
        super().__init__(machine, "load", self._run())

    async def _run(self) -> None:
        parts = await self._machine.parts()
        into = await parts.transactions.write(store.open_batch, BATCH, GROUP)
        loader = make_loader(
            parts, into, reading=lambda call: self._read(parts, call), defaults=TaskDefaults()
        )
        await loader.load(self._lines)

    async def _read(self, parts: Parts, call: Callable[[], Result]) -> Result:
        await parts.clock.sleep(self._chunk_s * self._machine.rng.random())
        return call()

"""The programs of a run, each made of the product's own parts: agents as `agent.app` builds them, the loader, a cancel."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from agent.builder import Builder
from agent.heartbeat import Heartbeat
from agent.ledger.adapter import Lanes
from agent.lifecycle import Agent, Stop
from agent.telemetry import Counts
from producer import cancel, store
from producer.app import Parts
from producer.lines import Bad, Good
from producer.load import Loader
from producer.topics.family import Family
from schemas.clock import Clock
from schemas.config import AgentConfig, Config, KafkaConfig, LLMConfig
from schemas.database import Database
from schemas.lanes import InlineLane, Lane
from schemas.topics import Topics
from tests.simulation.broker import Broker
from tests.simulation.bus import SimPublisher, SimSource, SimTopicAdmin
from tests.simulation.eventloop import Process, VirtualLoop
from tests.simulation.lane import SimLane
from tests.simulation.provider import SimLLM
from tests.simulation.store import SimDatabase, Store
from tests.simulation.weather import Weather

Result = TypeVar("Result")
GROUP, BATCH = "g", "b"
TOPICS = Topics(GROUP, ("30s", "5m"))
LEDGER_ID = bytes(range(16)).hex()
LLM_TIMEOUT_S, DRAIN_S = 20.0, 5.0


@dataclass(slots=True)
class Machine:
    """What all programs of a run share."""

    loop: VirtualLoop
    clock: Clock
    rng: random.Random
    weather: Weather
    store: Store
    broker: Broker
    llm: SimLLM
    slots: int
    sweep_slack_s: float

    def lane(self, *, patient: bool = True) -> Lane:
        """Return a lane of its own."""
        return SimLane(weather=self.weather, clock=self.clock, patient=patient)

    def database(self) -> Database:
        """Return a way to the one database."""
        return SimDatabase(self.store, self.weather, self.clock)

    def parts(self) -> Parts:
        """Return the parts that one program opens."""
        topics, database, lane = TOPICS, self.database(), self.lane()
        admin = SimTopicAdmin(broker=self.broker, clock=self.clock, weather=self.weather)
        family = Family(admin=admin, database=database, lane=lane, topics=topics, clock=self.clock)
        publisher = SimPublisher(broker=self.broker, clock=self.clock, weather=self.weather)
        return Parts(self._config(), topics, self.clock, database, lane, admin, publisher, family, LEDGER_ID)

    def source(self, destination: str) -> SimSource:
        """Return the consumer handle of one destination."""
        return SimSource(
            broker=self.broker,
            topic=TOPICS.name(destination),
            group_id=TOPICS.consumer_group(destination),
            clock=self.clock,
            weather=self.weather,
        )

    def _config(self) -> Config:
        return Config(
            data_dir=Path("/nonexistent"),
            kafka=KafkaConfig(bootstrap="simulated"),
            llm=LLMConfig(base_url="http://simulated", model="m", timeout_s=LLM_TIMEOUT_S),
            agent=AgentConfig(slots=self.slots, drain_timeout_s=DRAIN_S, sweep_slack_s=self.sweep_slack_s),
            document_roots=(),
            retry_tiers=TOPICS.tiers,
        )


class AgentProgram:
    """One agent: its main loop, and its heartbeat as a thread of its own that can stall apart from it."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.name = name
        self.main, self.beat = Process(name), Process(f"{name}.beat")
        self.killed = False
        self.ended_s: float | None = None
        self.leases: set[int] = set()
        self.counts = Counts()
        self.stop = Stop()
        self._machine = machine
        self._parts = machine.parts()
        self.work = {destination: machine.source(destination) for destination in ("tasks", *TOPICS.tier_destinations)}
        self.inbox = machine.source("inbox")
        self.task = machine.loop.spawn(self.main, self._run())
        self.task.add_done_callback(lambda _task: self._end())

    @property
    def sources(self) -> list[SimSource]:
        """Return the consumer handles, that of the main topic first."""
        return [*self.work.values(), self.inbox]

    @property
    def running(self) -> bool:
        """Return whether the program is there, frozen or not."""
        return not self.killed and not self.task.done()

    def kill(self) -> None:
        """End it as SIGKILL would."""
        self.killed = True
        self._end()

    def _end(self) -> None:
        if self.ended_s is None:
            self.ended_s = self._machine.clock.now_s()
        self.main.alive = self.beat.alive = False

    def freeze(self) -> None:
        """Stop it as SIGSTOP would."""
        self._machine.loop.freeze(self.main)
        self._machine.loop.freeze(self.beat)

    def thaw(self) -> None:
        """Let it go on."""
        self._machine.loop.thaw(self.main)
        self._machine.loop.thaw(self.beat)

    async def _run(self) -> None:
        machine, parts = self._machine, self._parts
        builder = Builder(
            parts=parts,
            known=await parts.family.require(),
            connect=lambda _base_url, _api_key: machine.llm,
            lanes=Lanes(claim=machine.lane(), settle=machine.lane(), background=parts.lane),
            reading=InlineLane(),
            apart=InlineLane(),
            jitter=machine.rng.random,
            locks=None,
            heartbeat=self._heartbeat,
        )
        self.counts = builder.counts
        self.leases.add((await builder.heartbeat.register()).agent_id)
        beating = machine.loop.spawn(self.beat, builder.heartbeat.run())
        agent = self._agent(builder, beating)
        await agent.run(self.stop, until_done=False, drain_timeout_s=DRAIN_S)

    def _heartbeat(self, notice: Callable[[], str]) -> Heartbeat:
        machine = self._machine
        return Heartbeat(
            database=machine.database(),
            lane=machine.lane(patient=False),
            clock=machine.clock,
            name=self.name,
            group=GROUP,
            version="0",
            locks=None,
            notice=notice,
        )

    def _agent(self, builder: Builder, beating: "asyncio.Task[None]") -> Agent:
        async def leave() -> None:
            beating.cancel()
            await asyncio.wait([beating])
            await builder.heartbeat.stop()

        return builder.agent(work=self.work, inbox=self.inbox, reply_limit_bytes=1 << 20, duties=(builder.ids.run,), leave=leave)


class LoaderProgram:
    """`producer load`, that can be killed and started again."""

    def __init__(self, machine: Machine, lines: Sequence[Good | Bad], chunk_s: float) -> None:
        self.main = Process("load")
        self._chunk_s = chunk_s
        self._machine = machine
        self._lines = lines
        self.task = machine.loop.spawn(self.main, self._run())

    async def _run(self) -> None:
        parts = self._machine.parts()
        into = await parts.lane(lambda: parts.database.run(lambda c: store.open_batch(c, BATCH, GROUP)))
        loader = Loader(
            database=parts.database,
            lane=parts.lane,
            reading=self._read,
            publisher=parts.publisher,
            topics=parts.topics,
            clock=parts.clock,
            ledger_id=parts.ledger_id,
            into=into,
            max_attempts_of=lambda _type: 5,
            reject=lambda _line: None,
            progress=lambda _count: None,
        )
        await loader.load(self._lines)

    async def _read(self, call: Callable[[], Result]) -> Result:
        """The input is slow, so that there is work for as long as there are faults."""
        await self._machine.clock.sleep(self._chunk_s * self._machine.rng.random())
        return call()


async def cancel_batch(machine: Machine, name: str) -> None:
    """Do what `producer cancel --batch` does."""
    parts = machine.parts()
    found = await parts.lane(lambda: parts.database.run(lambda c: store.find_batch(c, name)))
    if found is None:
        return
    await parts.lane(lambda: parts.database.run(lambda c: cancel.mark(c, found, "somebody")))
    after = cancel.FIRST_KEY
    while after is not None:
        _, after = await parts.lane(lambda key=after: parts.database.run(lambda c: cancel.cancel_page(c, found.id, key)))  # type: ignore[misc]

"""One run: faults until the horizon, then none; then everything must end, and every agent must leave when it is asked to."""

import gc
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

from agent import partitions
from agent.ledger import lease
from producer import load
from producer.lines import Good
from schemas.envelope import Outgoing, Publication, encode
from schemas.errors import UnreachableError, UnsafeStateError
from schemas.line import parse
from tests.simulation import checks
from tests.simulation.broker import Broker, Group, Place
from tests.simulation.eventloop import PROCESS, Process, VirtualClock, VirtualLoop
from tests.simulation.plan import Plan
from tests.simulation.programs import BATCH, GROUP, LEDGER_ID, TOPICS, AgentProgram, LoaderProgram, Machine, cancel_batch
from tests.simulation.provider import SimLLM
from tests.simulation.store import Store
from tests.simulation.weather import Weather

PATIENCE_S = 900.0  # within this time after the last fault everything must have ended
LEAVE_S = 120.0
LOAD_CHUNK = 6
TASKS, INBOX = TOPICS.name("tasks"), TOPICS.name("inbox")
READ = ("tasks", *TOPICS.tier_destinations, "inbox")


class World:
    """A run of one plan. `problems` are the promises that were broken; none is the aim."""

    def __init__(self, plan: Plan, store: Store, say: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.problems: list[str] = []
        self._say = say
        self.rng = random.Random(f"run {plan.seed}")  # noqa: S311 - a seed must give the same run
        self.loop = VirtualLoop(random.Random(f"order {plan.seed}"))  # noqa: S311 - the same
        self.loop.set_exception_handler(self._unexpected)
        self.clock = VirtualClock(self.loop)
        self.weather = Weather(self.rng, dict(plan.chances), slow_s=dict(plan.slow_s))
        self.store = store
        self.broker = Broker(rng=self.rng, now_s=self.loop.time, utc_s=self.clock.utc_s)
        self.broker.on_commit = self._committed
        self.llm = SimLLM(store=store, clock=self.clock, weather=self.weather)
        self.machine = Machine(
            loop=self.loop,
            clock=self.clock,
            rng=self.rng,
            weather=self.weather,
            store=store,
            broker=self.broker,
            llm=self.llm,
            slots=plan.slots,
            sweep_slack_s=20.0 if plan.sweeps else 1e6,
        )
        self.agents: list[AgentProgram] = []
        self.incarnations: dict[int, AgentProgram | None] = {}
        self.lines = [_line(number, self.rng) for number in range(plan.tasks)]
        self.inbox = [_line(number, self.rng, "inbox") for number in range(plan.inbox)]
        self.cancelled = self.leaving = False
        self.passed: dict[tuple[str, Place], int] = {}
        self.seen: Counter[str] = Counter()
        self._names = count(1)
        self._ids = count(1)

    # ---- the run

    def run(self) -> list[str]:
        """Run to the end; return what was broken."""
        with self._patched():
            self.store.begin(self.clock.utc_s)
            try:
                self.loop.run_until_complete(self.loop.spawn(Process("world"), self._run()))
            except Exception as error:  # noqa: BLE001 - whatever ended the run is what the run is about
                self.problem("RUN", f"{type(error).__name__}: {error}")
            finally:
                self.loop.bury()
        return self.problems

    async def _run(self) -> None:
        await self.machine.parts().family.apply(self.plan.partitions, None)
        self.say(str(self.plan))
        self._start_load()
        for _ in range(self.plan.agents):
            self.start()
        await self._live_through()
        self._heal()
        await self._until("everything ends", PATIENCE_S, lambda: not checks.unfinished(self))
        await self._leave()
        checks.check(self)
        self.seen = checks.seen(self)

    async def _live_through(self) -> None:
        events = list(self.plan.events)
        sent = [(self.rng.uniform(0, self.plan.horizon_s), line) for line in self.inbox]
        while self.loop.time() < self.plan.horizon_s and (sent or checks.unfinished(self)):
            await self.clock.sleep(0.25)
            while events and events[0][0] <= self.loop.time():
                _, kind = events.pop(0)
                self.say(f"FAULT {kind}")
                getattr(self, f"_{kind}")()
            for one in [one for one in sent if one[0] <= self.loop.time()]:
                sent.remove(one)
                self.broker.append(Outgoing(INBOX, None, one[1].value, []))
        for _, line in sent:
            self.broker.append(Outgoing(INBOX, None, line.value, []))

    def _heal(self) -> None:
        self.say("no more faults")
        self.weather.clear()
        if not any(agent.running and not agent.stop.asked.is_set() for agent in self.agents):
            self.start()
        if self.loader.task.done() or not self.loader.main.alive:
            self._start_load()

    async def _leave(self) -> None:
        self.leaving = True
        await self._until("every agent leaves", LEAVE_S, self._all_left)
        for agent in self.agents:
            self._ended(agent)

    def _all_left(self) -> bool:
        running = [agent for agent in self.agents if agent.running]
        for agent in running:
            if not agent.stop.asked.is_set():
                agent.stop.signal()
        return not running

    async def _until(self, what: str, limit_s: float, fact: Callable[[], bool]) -> None:
        began_s = self.loop.time()
        while not fact():
            if self.loop.time() - began_s > limit_s:
                self.problem("P1", f"{what}: not within {limit_s:.0f} s; {checks.unfinished(self)}")
                return
            await self.clock.sleep(1.0)
        self.say(f"{what}: after {self.loop.time() - began_s:.0f} s")

    def _ended(self, agent: AgentProgram) -> None:
        """A drain may give up while the database is away; any other error is a bug."""
        error = agent.task.exception() if agent.task.done() else None
        if error is not None and not isinstance(error, UnreachableError):
            self.problem("RUN", f"{agent.name} ended with {type(error).__name__}: {error}")

    def start(self) -> None:
        """Start another agent, unless the run is about to end."""
        if self.leaving:
            return
        self.agents.append(AgentProgram(self.machine, f"agent-{next(self._names)}"))

    def _start_load(self) -> None:
        self.loader = LoaderProgram(self.machine, self.lines, self.plan.horizon_s / (1 + self.plan.tasks / LOAD_CHUNK))
        self.loader.task.add_done_callback(self._loaded)

    def _loaded(self, task: Any) -> None:
        error = task.exception()
        if error is not None and not (self.cancelled and isinstance(error, UnsafeStateError)):
            self.problem("RUN", f"load ended with {type(error).__name__}: {error}")

    # ---- what happens

    def _later(self, least_s: float, most_s: float, what: Callable[[], None]) -> None:
        self.loop.call_later(self.rng.uniform(least_s, most_s), what)

    def _one(self) -> AgentProgram | None:
        running = [agent for agent in self.agents if agent.running]
        return self.rng.choice(running) if running else None

    def _kill(self) -> None:
        if agent := self._one():
            self.say(f"{agent.name} is killed")
            agent.kill()
            self._later(0.5, 15, self.start)

    def _freeze(self) -> None:
        if agent := self._one():
            self.say(f"{agent.name} is frozen")
            agent.freeze()
            self._later(1, self.rng.choice((4, 25, 40)), lambda: self._thaw(agent))

    def _stall_loop(self) -> None:
        if agent := self._one():
            self.loop.freeze(agent.main)
            self._later(1, 40, lambda: self._thaw(agent))

    def _stall_beat(self) -> None:
        if agent := self._one():
            self.loop.freeze(agent.beat)
            self._later(5, 40, lambda: self._thaw(agent))

    def _thaw(self, agent: AgentProgram) -> None:
        if agent.main.frozen or agent.beat.frozen:
            self.say(f"{agent.name} goes on")
            agent.thaw()

    def _drain(self) -> None:
        if agent := self._one():
            self.say(f"{agent.name} drains")
            agent.stop.signal()
            self._later(0.5, 10, self.start)

    def _start(self) -> None:
        self.start()

    def _shuffle(self) -> None:
        for destination in READ:
            self.broker.group(TOPICS.consumer_group(destination)).shuffle(self.rng)

    def _evict(self) -> None:
        if agent := self._one():
            for source in agent.sources:
                source.deaf_until_s = self.loop.time() + self.rng.uniform(0, 30)
                self.broker.evict(source.member)

    def _zombie(self) -> None:
        """An agent loses its partitions and its lease, and hears of neither."""
        if agent := self._one():
            agent.sources[0].deaf_until_s = self.loop.time() + 40
            self.broker.evict(agent.sources[0].member)
            self.loop.freeze(agent.beat)
            self._later(15, 40, lambda: self._thaw(agent))

    def _database_away(self) -> None:
        self.weather.struck["database_away"] += 1
        self.weather.down_until_s["database"] = self.loop.time() + self.rng.choice((2, 8, 25))

    def _broker_away(self) -> None:
        self.weather.down_until_s["broker"] = self.loop.time() + self.rng.choice((2, 15, 40))

    def _llm_away(self) -> None:
        self.weather.down_until_s["llm"] = self.loop.time() + self.rng.choice((5, 40))

    def _garbage(self) -> None:
        headers = encode(Publication(LEDGER_ID, GROUP, BATCH, self.rng.randint(1, 40), 0))
        foreign = encode(Publication("f" * 32, GROUP, BATCH, 1, 0))
        leap = encode(Publication(LEDGER_ID, GROUP, BATCH, 1, 5000))
        unknown = encode(Publication(LEDGER_ID, GROUP, BATCH, 10**6, 0))
        self.broker.append(Outgoing(TASKS, b"x", b"value", self.rng.choice(([], headers, foreign, leap, unknown))))
        clash = self.inbox[0].value.replace(b"Sum", b"Add") if self.inbox else b"{}"
        self.broker.append(Outgoing(INBOX, None, self.rng.choice((b"not json", b"", clash)), []))

    def _copies(self) -> None:
        for log in self.broker.topics[TASKS].logs:
            for stored in self.rng.sample(log.records, min(3, len(log.records))):
                self.broker.append(Outgoing(TASKS, stored.key, stored.value, stored.headers))

    def _cancel(self) -> None:
        self.cancelled = True
        self.loop.spawn(Process("cancel"), cancel_batch(self.machine, BATCH))

    def _kill_load(self) -> None:
        self.loader.main.alive = False
        self._later(0.5, 10, self._start_load)

    def _lose(self) -> None:
        self.broker.lose((TASKS, self.rng.randrange(self.plan.partitions)))

    def _forget_offsets(self) -> None:
        """A broker forgets the offsets of a group without members only."""
        for agent in self.agents:
            agent.kill()
        for member in self.broker.members():
            self.broker.evict(member)
        for destination in READ:
            self.broker.group(TOPICS.consumer_group(destination)).committed.clear()
        self.start()

    # ---- what is written down

    def say(self, text: str) -> None:
        """Add a line to the trace."""
        if self._say is not None:
            process = PROCESS.get()
            self._say(f"{self.loop.time():9.3f} {process.name if process else '':14} {text}")

    def problem(self, promise: str, text: str) -> None:
        """Note a broken promise."""
        self.say(f"BROKEN {promise}: {text}")
        self.problems.append(f"{promise} at {self.loop.time():.3f} s: {text}")

    def _committed(self, group: Group, place: Place, offset: int) -> None:
        self.say(f"commit {group.name} {place[0]}/{place[1]} -> {offset}")
        checks.commit(self, group, place, offset)

    def _unexpected(self, _loop: Any, context: dict[str, Any]) -> None:
        if "handle" in context:  # a callback raised; what a task raises is its program's end, or its creator's affair
            self.problem("RUN", f"{context.get('message')}: {context.get('exception')!r}")

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Draw agents' ids in order, load in small chunks, let spans be narrow, and hear what the product logs."""
        with ExitStack() as stack:
            gc.disable()  # a collection in the middle would let killed programs end at a time that no seed decides
            stack.callback(gc.enable)
            stack.enter_context(patch.object(lease, "_draw", self._draw))
            stack.enter_context(patch.object(load, "SQLITE_CHUNK", LOAD_CHUNK))
            if self.plan.narrow:
                for name, value in (("SPAN", 8), ("RESUME_SPAN", 6), ("FINISHED_SHARE", 0.6)):
                    stack.enter_context(patch.object(partitions, name, value))
            stack.enter_context(self._heard())
            yield

    @contextmanager
    def _heard(self) -> Iterator[None]:
        handler = _Ears(self)
        root = logging.getLogger()
        before = root.level
        root.addHandler(handler)
        root.setLevel(logging.INFO if self._say else logging.WARNING)
        try:
            yield
        finally:
            root.removeHandler(handler)
            root.setLevel(before)

    def _draw(self) -> int:
        agent_id, process = next(self._ids), PROCESS.get()
        name = process.name.removesuffix(".beat") if process else ""
        self.incarnations[agent_id] = next((agent for agent in self.agents if agent.name == name), None)
        return agent_id


class _Ears(logging.Handler):
    """Puts the product's log into the trace; a bug that it logs breaks the run."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.say(f"{record.levelname}: {record.getMessage()}")
        if record.exc_info or record.name == "agent.handlers.runner":
            self._world.problem("RUN", record.getMessage())


def _line(number: int, rng: random.Random, kind: str = "") -> Good:
    key = f"{kind}{rng.choice(('t', 't', 't', 't', 't', 't', 't', 'refused', 'poison', 'unpublishable-refused'))}-{number}"
    value = b'{"id":"%s","type":"document","prompt":"Sum {document}","input":{"text":"text %d"}}' % (key.encode(), number)
    return Good(number + 1, key, value, parse(value))

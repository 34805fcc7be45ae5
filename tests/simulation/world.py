"""One run: faults until the horizon, then none.

Then everything must end, and every agent must leave when it is asked to.
"""

import gc
import logging
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pybreaker  # noqa: F401 - otherwise the first stop of a route loads it
from sqlalchemy import select

from docllm.agent.handlers import runner
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.ledger.counts import release_counts
from docllm.agent.ledger.leases import leasing
from docllm.agent.process.containment import OutOfMemoryError
from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.agent.quota.grants import LimitName
from docllm.producer.input.lines import ValidLine
from docllm.producer.loading import foreign_records, loader
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.ledger.tables import release_count
from docllm.schemas.runtime import crash
from docllm.schemas.settings.quota import QuotaLimits
from docllm.schemas.task.answer_schema import validator
from docllm.schemas.task.line.parsing import LineError, TaskLine, parse, parse_again
from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.result import fitness
from docllm.schemas.text.untrusted import describe_error
from tests.invariants.happened import Outage
from tests.invariants.promises import violations
from tests.simulation import people, reached, tasks, watch, witness
from tests.simulation.broker import Broker, Cursor, Group
from tests.simulation.eventloop import EPOCH_S, PROCESS, Process, VirtualClock, VirtualLoop
from tests.simulation.events import Events
from tests.simulation.machine import GROUP, HOOKED, SHARED, Machine
from tests.simulation.mishaps import Mishaps
from tests.simulation.plan import Plan
from tests.simulation.programs import AgentProgram, LoaderProgram, Program
from tests.simulation.provider import SimLLM
from tests.simulation.purging import Purging
from tests.simulation.quota import SimRedis
from tests.simulation.store import Store
from tests.simulation.turns import TurnWatch
from tests.simulation.weather import Weather

PATIENCE_S = 1800.0  # everything must have ended within this time after the last fault
LEAVE_S = 120.0
TOLD_S = 120.0
LOAD_CHUNK = 6
INBOX = f"{GROUP}.inbox"
# As in production, but counts of releases are added up after a minute, so that runs see it.
_PAST = (
    select(*release_counts._KEYS)
    .where(release_count.c.agent_id > 0, release_count.c.starts_at < utc_after(-60.0))
    .order_by(*release_counts._KEYS)
    .limit(release_counts.PAGE)
)


class KilledError(BaseException):
    """Ends a program at its present point."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """An event of the plan, by its name."""

    at_s: float
    name: str

    def happen(self, world: "World") -> None:
        world.strike(self.name)


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A record that another producer sends to the inbox."""

    at_s: float
    value: bytes

    def happen(self, world: "World") -> None:
        world.broker.append(Outgoing(INBOX, None, self.value, []))


class World:
    """A run of one plan; `problems` are its broken promises, ideally none."""

    def __init__(self, plan: Plan, store: Store, say: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.problems: list[str] = []
        self.failures: list[str] = []
        self._say = say
        self.rng = random.Random(f"run {plan.seed}")  # noqa: S311 - a seed must give the same run
        self.loop = VirtualLoop(random.Random(f"order {plan.seed}"))  # noqa: S311 - the same
        self.loop.set_exception_handler(self._unexpected)
        self.clock = VirtualClock(self.loop)
        self.database_ahead_s = 0.0
        self.weather = Weather(self.rng, dict(plan.chances), slow_s=dict(plan.slow_s))
        self.store = store
        self.broker = Broker(rng=self.rng, utc_s=self.clock.utc_s, turn=store.turn)
        self.broker.on_commit = self._committed
        self.broker.on_revoked = self._revoked
        self.llm = SimLLM(store=store, clock=self.clock, weather=self.weather)
        capped = any(tenant.in_flight for tenant in plan.tenants.values())
        has_limits = bool(plan.quota) or capped or SHARED in plan.kinds
        self.redis = SimRedis(rng=self.rng, weather=self.weather) if has_limits else None
        self.llm.allow(plan.quota, plan.provider_share)
        self.machine = self._machine()
        self.agents: list[AgentProgram] = []
        self.others: list[Program] = []  # cancels, replays, and other commands of people
        self.incarnations: dict[int, AgentProgram | None] = {}
        self.lines, self.inbox = self._planned_lines()
        self.turns = TurnWatch(self)
        self.outages: list[Outage] = []
        self.commits: list[tuple[int, str, Cursor, int]] = []
        self.revoked_s: dict[str, list[float]] = defaultdict(list)  # by program
        self.cancelled = self.leaving = self.well = False
        self.well_s = math.inf
        self.crashes = list(plan.crashes)
        self.armed: list[list[Any]] = []  # point, passes left
        self.seen: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()  # limits of the agents
        self._names, self._ids = count(1), count(1)
        self._events = Events(self)
        self.llm.called = self._events.called

    def _machine(self) -> Machine:
        plan = self.plan
        return Machine(
            loop=self.loop,
            rng=self.rng,
            weather=self.weather,
            store=self.store,
            broker=self.broker,
            llm=self.llm,
            slots=plan.slots,
            max_attempts=plan.max_attempts,
            sweep_slack_s=20.0 if plan.sweeps else 1e6,
            sqlite=plan.sqlite,
            limits=InFlightLimits(
                **{"ready_normal": plan.limits.get("ready", 1000), **plan.limits}
            ),
            redrive=plan.redrive,
            redis=self.redis,
            quota=QuotaLimits(**plan.quota),
            fallback=plan.fallback,
            hooks=HOOKED in plan.kinds,
            shared=SHARED in plan.kinds,
            tenants=plan.tenants,
            overflow=plan.overflow,
        )

    def _planned_lines(self) -> tuple[list[ValidLine], list[ValidLine]]:
        """Return the lines of the plan that are loaded, and those that come by the inbox."""
        plan = self.plan
        own = {
            kind: weight for kind, weight in plan.kinds.items() if kind not in tasks.OF_THE_INBOX
        }
        loaded = tasks.lines(plan.tasks, self.rng, own, plan.models, plan.horizon_s)
        sent = tasks.lines(
            plan.inbox,
            self.rng,
            plan.kinds,
            plan.models,
            plan.horizon_s,
            "inbox-",
        )
        if plan.fallback:
            loaded = tasks.bounded(loaded, plan.seed)
            sent = tasks.bounded(sent, plan.seed)
        if plan.outputs:
            loaded = tasks.written(loaded, plan.seed)
        if plan.tenants:
            of_turns = plan.priorities, plan.tenants
            loaded = tasks.placed(loaded, *of_turns, f"{plan.seed}")
            sent = tasks.placed(sent, *of_turns, f"{plan.seed} inbox")
        return loaded, sent

    @property
    def redis_is_well(self) -> bool:
        """Return whether nothing of this run ever troubles Redis."""
        names = {*self.plan.chances, *self.plan.slow_s, *(kind for _, kind in self.plan.events)}
        return not any("redis" in name for name in names)

    # ---- the run

    def run(self) -> list[str]:
        """Run to the end; return the broken promises."""
        with self._patched():
            self.store.begin(
                lambda: EPOCH_S + self.loop.time() + self.database_ahead_s,
                self.loop.time,
                GROUP,
            )
            try:
                self.loop.run_until_complete(self.loop.spawn(Process("world"), self._run()))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever ended the run is its result
                self.problem("RUN", describe_error(error))
            finally:
                self.loop.bury()
        return self.problems

    async def _run(self) -> None:
        await people.apply_topics(self.machine, self.plan.partitions)
        self.say(str(self.plan))
        self.start_load()
        for _ in range(self.plan.agents):
            self.start()
        self.loop.spawn(Process("supervisor"), self._supervise())
        await self._live_through()
        self._heal()
        await self._until("everything ends", PATIENCE_S, lambda: not watch.unfinished(self))
        if self.plan.again and not self.problems:
            await self._events.replay_again()
            await self._until(
                "everything ends again", PATIENCE_S, lambda: not watch.unfinished(self)
            )
        purging = Purging(self, self._events.do) if self._may_purge() else None
        if purging is not None:
            await purging.run()
            await self._until("late records end", PATIENCE_S, lambda: not watch.unfinished(self))
        await self._until("the batch's end is told", TOLD_S, lambda: not watch.untold(self))
        await self._leave()
        evidence = witness.evidence(self) if purging is None else purging.evidence()
        for line in violations(evidence):
            self.problem(*line.split(" ", 1))
        self.seen = watch.seen(self)
        self.seen["purged"] += purging is not None and purging.done
        self.reached[reached.MOVED] += self.seen["moved by a closed route"]

    def _may_purge(self) -> bool:
        """Return whether the batch is purged; a join that waits for a replay keeps it open."""
        return self.plan.purge and not self.problems and not watch.stopped(self)

    async def _supervise(self) -> None:
        """Keep an agent running, and restart a load that was killed."""
        while not self.leaving:
            await self.clock.sleep(self.rng.uniform(2, 12))
            if not any(agent.running and agent.asked_s is None for agent in self.agents):
                self.start()
            if self.loader.killed:
                self.start_load()

    async def _live_through(self) -> None:
        arrivals = [
            _Arrival(self.rng.uniform(0, self.plan.horizon_s), line.value) for line in self.inbox
        ]
        arrivals.sort(key=lambda arrival: arrival.at_s)
        events: list[_Fault | _Arrival] = [_Fault(*event) for event in self.plan.events]
        events += arrivals
        looked_s = 0.0
        for event in sorted(events, key=lambda event: event.at_s):
            while self.loop.time() < event.at_s:
                await self.clock.sleep(min(event.at_s - self.loop.time(), 1.0))
                may_look = isinstance(event, _Fault) and self.loop.time() - looked_s >= 1
                if may_look and not watch.unfinished(self):
                    self._send_rest(arrivals)
                    return
                looked_s = self.loop.time()
            event.happen(self)

    def _send_rest(self, arrivals: Sequence["_Arrival"]) -> None:
        for arrival in arrivals:
            if arrival.at_s > self.loop.time():
                arrival.happen(self)

    def strike(self, name: str) -> None:
        """Let a fault of the plan happen."""
        self.say(f"FAULT {name}")
        self.weather.struck[name] += 1
        getattr(self._events, name)()

    def _heal(self) -> None:
        self.say("no more faults")
        self.weather.clear()
        self.armed.clear()
        self.well, self.well_s = True, self.loop.time()
        self.llm.lift_the_day()
        for agent in self.agents:
            agent.learn()
        self.outages = [outage.until(self.loop.time()) for outage in self.outages]
        self._events.heal()
        staying = [agent for agent in self.agents if agent.running and agent.asked_s is None]
        for agent in staying[1:] if not self.plan.linger else ():
            agent.stop()

    async def _leave(self) -> None:
        self.leaving = True
        await self._until("every agent leaves", LEAVE_S, self._all_left)
        for program in (*self.agents, *self.others, self.loader):
            self._ended(program)

    def _all_left(self) -> bool:
        running = [agent for agent in self.agents if agent.running]
        for agent in running:
            if agent.asked_s is None:
                agent.stop()
        return not running

    async def _until(self, what: str, limit_s: float, fact: Callable[[], bool]) -> None:
        began_s = self.loop.time()
        while not fact():
            if self.loop.time() - began_s > limit_s:
                self.problem("P1", f"{what}: not within {limit_s:.0f} s; {watch.unfinished(self)}")
                return
            await self.clock.sleep(1.0)
        self.say(f"{what}: after {self.loop.time() - began_s:.0f} s")

    def _ended(self, program: Program) -> None:
        """Judge how a program ended.

        A drain may give up while the database is away. An impossible command is refused, such as a
        load of a cancelled batch. Any other error is a bug.
        """
        error = program.error
        if (
            error is not None
            and not isinstance(error, UnreachableError | UnsafeStateError | OutOfMemoryError)
            and not program.killed
        ):
            self.failures.append(f"{program.name} ended with {type(error).__name__}: {error}")

    def start(self) -> None:
        """Start another agent, unless the run is about to end.

        An agent that finds the topics unsafe ends at once, and is started again.
        """
        if not self.leaving:
            agent = AgentProgram(self.machine, f"agent-{next(self._names)}", good=lambda: self.well)
            self.agents.append(agent)
            agent.task.add_done_callback(lambda _task: self._again(agent))

    def _again(self, agent: AgentProgram) -> None:
        if isinstance(agent.error, UnsafeStateError):
            self.loop.call_later(2.0, self.start)

    def start_load(self) -> None:
        """Start the load, or start it again."""
        self.loader = LoaderProgram(
            self.machine, self.lines, self.plan.horizon_s / (1 + self.plan.tasks / LOAD_CHUNK)
        )

    # ---- the trace

    def say(self, text: str) -> None:
        """Add a line to the trace."""
        if self._say is not None:
            process = PROCESS.get()
            self._say(f"{self.loop.time():9.3f} {process.name if process else '':14} {text}")

    def problem(self, promise: str, text: str) -> None:
        """Record a broken promise."""
        self.say(f"BROKEN {promise}: {text}")
        self.problems.append(f"{promise} {text}")

    def _committed(self, group: Group, place: Cursor, offset: int) -> None:
        self.say(f"commit {group.name} {place[0]}/{place[1]} -> {offset}")
        self.commits.append(
            (self.store.turn(), self.broker.topics[place[0]].topic_id, place, offset)
        )

    def _revoked(self) -> None:
        if process := PROCESS.get():
            self.revoked_s[process.name].append(self.loop.time())

    def _unexpected(self, _loop: Any, context: dict[str, Any]) -> None:
        # A callback raised; a task's error is its program's end, or its creator's affair.
        if "handle" in context:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    # ---- replacements of the product's parts

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Replace parts of the product for the run.

        Agents' ids are drawn in order, loads use small chunks, programs die at points, and the log
        is read.
        """
        with ExitStack() as stack:
            # A collection in the middle would end killed programs at a time that no seed decides.
            gc.disable()
            stack.callback(gc.enable)
            mishaps = Mishaps(self.rng, lambda: self.well)
            replaced: list[tuple[ModuleType | type, str, object]] = [
                (leasing, "_draw", self._draw),
                (crash, "reach", self._reach),
                (ConfiguredQuotas, "find", self._quota_of(ConfiguredQuotas.find)),
            ]
            replaced += [
                (foreign_records, "parse", mishaps.parsing(self._parse)),
                (runner, "parse_again", mishaps.parsing_again(parse_again)),
            ]
            replaced += [
                (fitness, "_text_answer", mishaps.judging(fitness._text_answer)),
                (fitness, "_schema_answer", mishaps.judging(fitness._schema_answer)),
            ]
            replaced += [(validator, "validator_of", mishaps.validating(validator.validator_of))]
            replaced += [(release_counts, "_PAST", _PAST)]
            replaced += [(loader, name, LOAD_CHUNK) for name in ("CHUNK", "SQLITE_CHUNK")]
            for module, name, value in replaced:
                stack.enter_context(patch.object(module, name, value))
            stack.enter_context(reached.noting(self.reached))
            stack.enter_context(self.turns.watching())
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

    def _quota_of(self, find: Callable[..., Any]) -> Callable[..., Any]:
        """Return what gives accounts their limits: in the end none of a day, whose end is far."""

        def changed(configured: ConfiguredQuotas, name: LimitName) -> Any:
            quota = find(configured, name)
            if quota is None or not self.well or quota[1].rpd is None:
                return quota
            return quota[0], replace(quota[1], rpd=None)

        return changed

    def _draw(self) -> int:
        agent_id, process = next(self._ids), PROCESS.get()
        name = process.name.removesuffix(".beat") if process else ""
        self.incarnations[agent_id] = next(
            (agent for agent in self.agents if agent.name == name), None
        )
        return agent_id

    def _reach(self, point: str) -> None:
        process = PROCESS.get()
        self.reached[reached.POINTS.get(point, point)] += 1
        for armed_point in self.armed:
            if armed_point[0] == point and process is not None and process.alive:
                armed_point[1] -= 1
                if not armed_point[1]:
                    self.armed.remove(armed_point)
                    self.say(f"{process.name} is killed at {point}")
                    self.weather.struck[f"at {point}"] += 1
                    process.kill()
                    raise KilledError

    def _parse(self, value: bytes) -> TaskLine:
        """Read a task line by the running release's rules; lines of the future need an update."""
        if not self.well and tasks.FUTURE.encode() in value:
            raise LineError("id", "is of the future", "update")
        return parse(value)


class _Ears(logging.Handler):
    """Copies the product's log into the trace; a logged bug breaks the run."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.say(f"{record.levelname}: {record.getMessage()}")
        text = record.getMessage()
        of_ours = (
            "handler of type document failed" in text and "within its claim" not in text
        )  # it may have stood still
        killed = "KilledError" in text or (record.exc_info and record.exc_info[0] is KilledError)
        if (record.exc_info or of_ours) and not killed:
            self._world.failures.append(text)

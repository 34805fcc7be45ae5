"""The events of a run, by their names in the plan."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from docllm.schemas.task.record.envelope import Outgoing, Publication, encode
from tests.invariants.happened import Outage
from tests.simulation import people
from tests.simulation.machine import BATCH, GROUP, LEDGER_ID, NEW_TIERS, OTHER, SLOW
from tests.simulation.programs import AgentProgram, Program
from tests.simulation.provider import OUTAGES, REFUSALS

if TYPE_CHECKING:
    from tests.simulation.world import World

TASKS, INBOX, LETTERS = (f"{GROUP}.{destination}" for destination in ("tasks", "inbox", "dlq"))
_SLOW_REPLAY_S = 900.0  # a slow replay ends well within the world's patience
_ROUTES = ("default", "default", SLOW, OTHER)


class Events:
    """Each method is one kind of event, and undoes its own effects later."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._replaying: Program | None = None
        self._zombies = 0  # wanted

    def heal(self) -> None:
        """Let people finish what was interrupted. Guards and replays end by themselves."""
        if self._world.cancelled:
            self.do("cancel", people.cancel_batch(self._world.machine))
        self._apply_topics()

    # ---- programs

    def kill(self) -> None:
        """Kill an agent."""
        if agent := self._one():
            self._world.say(f"{agent.name} is killed")
            agent.kill()
            self._later(0.5, 15, self._world.start)

    def crash(self) -> None:
        """Let a program be killed when it reaches a point for the n-th time from now on."""
        self._world.armed.append([*self._world.crashes.pop(0)])

    def freeze(self) -> None:
        """Freeze an agent as a whole."""
        if agent := self._one():
            self._world.say(f"{agent.name} is frozen")
            agent.freeze()
            self._later(1, self._world.rng.choice((4, 25, 40)), lambda: self._thaw(agent))

    def stall_loop(self) -> None:
        """Freeze an agent's main loop; its heartbeat goes on."""
        if agent := self._one():
            self._world.loop.freeze(agent.main)
            self._later(1, 40, lambda: self._thaw(agent))

    def stall_beat(self) -> None:
        """Freeze an agent's heartbeat; its work goes on."""
        if agent := self._one():
            self._world.loop.freeze(agent.beat)
            self._later(5, 40, lambda: self._thaw(agent))

    def drain(self) -> None:
        """Ask an agent to leave, sometimes twice."""
        if agent := self._one():
            self._world.say(f"{agent.name} drains")
            agent.stop()
            if self._world.rng.random() < 0.3:
                self._later(0.1, 4, agent.stop)
            self._later(0.5, 10, self._world.start)

    def start(self) -> None:
        """Start another agent."""
        self._world.start()

    def agent_clock(self) -> None:
        """Set an agent's clock wrong."""
        if (agent := self._one()) and agent.clock is not None:
            agent.clock.wrong_by_s += self._world.rng.choice((-3600.0, -30.0, 30.0, 86400.0))

    def _one(self) -> AgentProgram | None:
        running = [agent for agent in self._world.agents if agent.running]
        return self._world.rng.choice(running) if running else None

    def _thaw(self, agent: AgentProgram) -> None:
        if agent.main.frozen or agent.beat.frozen:
            self._world.say(f"{agent.name} goes on")
            agent.thaw()

    # ---- groups

    def shuffle(self) -> None:
        """Rebalance every group at random."""
        for _, group in sorted(self._world.broker.groups.items()):
            group.shuffle(self._world.rng)

    def evict(self) -> None:
        """Evict an agent from its groups; it notices late."""
        if agent := self._one():
            for source in agent.sources:
                source.deaf_until_s = self._world.loop.time() + self._world.rng.uniform(0, 30)
                self._world.broker.evict(source.member)

    def zombie(self) -> None:
        """Let the next calling agent lose its partitions and its lease without noticing either.

        Its calls take long meanwhile.
        """
        self._zombies += 1
        if sum(agent.running for agent in self._world.agents) < 2:
            self._world.start()

    def called(self, program: str) -> None:
        """Handle a call that begins."""
        now_s = self._world.loop.time()
        agents = {
            agent.name: agent
            for agent in self._world.agents
            if agent.running and agent.asked_s is None
        }
        others = [
            agent
            for agent in agents.values()
            if agent.name != program and now_s - agent.began_s > 4 and not agent.beat.frozen
        ]
        if self._zombies and others and program in agents:
            self._zombies -= 1
            self._world.weather.crawling[program] = (self._world.rng.uniform(15, 19), now_s + 3)
            self._later(0.5, 2, lambda: self._cut_off(agents[program]))

    def _cut_off(self, agent: AgentProgram) -> None:
        if agent.running:
            is_heard = self._world.rng.random() < 0.5
            for source in agent.lane_sources:
                source.deaf_until_s = self._world.loop.time() + 40
                source.is_heard = is_heard
                self._world.broker.evict(source.member)
            self._world.loop.freeze(agent.beat)
            self._later(15, 40, lambda: self._thaw(agent))
            self._world.say(f"{agent.name} is a zombie")

    # ---- servers

    def database_away(self) -> None:
        """Make the database unavailable."""
        self._away("database", (2, 8, 25))

    def database_clock(self) -> None:
        """Set the database's clock."""
        self._world.database_ahead_s += self._world.rng.choice((-20.0, -5.0, 7.0, 13.0, 30.0))

    def broker_away(self) -> None:
        """Make the broker unavailable."""
        self._away("broker", (2, 15, 40))

    def llm_away(self) -> None:
        """Delay every answer of the LLM."""
        self._away("llm", (5, 40))

    def redis_away(self) -> None:
        """Make Redis unavailable."""
        if redis := self._world.redis:
            redis.faults += 1
            redis.shares = True
            self._away("redis", (2, 15, 40))

    def redis_flushed(self) -> None:
        """Empty Redis."""
        if redis := self._world.redis:
            redis.flush()

    def redis_restored(self) -> None:
        """Restore Redis from an old dump."""
        if redis := self._world.redis:
            redis.restore()

    def redis_clock(self) -> None:
        """Set the clock of Redis."""
        if redis := self._world.redis:
            redis.set_clock(self._world.rng.choice((-3600.0, -3.0, 3.0, 3600.0)))

    def outage(self) -> None:
        """Make every call on a route fail."""
        self._fail(OUTAGES)

    def refusal(self) -> None:
        """Make every call on a route be refused."""
        self._fail(REFUSALS)

    def _away(self, what: str, how_long_s: tuple[int, ...]) -> None:
        self._world.weather.down_until_s[what] = self._world.loop.time() + self._world.rng.choice(
            how_long_s
        )

    def _fail(self, troubles: dict[str, str]) -> None:
        world = self._world
        now_s, route, trouble = (
            world.loop.time(),
            world.rng.choice(_ROUTES),
            world.rng.choice(sorted(troubles)),
        )
        until_s = now_s + world.rng.choice((6.0, 20.0, 45.0))
        world.say(f"route {route}: {trouble} until {until_s:.0f}")
        world.outages = [
            outage.until(now_s) if outage.route == route else outage for outage in world.outages
        ]
        world.weather.outages[route] = (trouble, until_s)
        world.outages.append(Outage(route, troubles[trouble], now_s, until_s))

    # ---- topics

    def garbage(self) -> None:
        """Write foreign records."""
        rng, broker = self._world.rng, self._world.broker
        claimed = (
            (LEDGER_ID, rng.randint(1, 40), 0),
            ("f" * 32, 1, 0),
            (LEDGER_ID, 1, 5000),
            (LEDGER_ID, 10**6, 0),
        )
        headers = [
            encode(Publication(ledger, GROUP, BATCH, task, fence))
            for ledger, task, fence in claimed
        ]
        self._write(Outgoing(TASKS, b"x", b"value", rng.choice(([], *headers))))
        clash = self._world.inbox[0].value.replace(b"Sum", b"Add") if self._world.inbox else b"{}"
        if INBOX in broker.topics:
            self._write(Outgoing(INBOX, None, rng.choice((b"not json", b"", clash)), []))

    def copies(self) -> None:
        """Write some records again."""
        topic = self._world.broker.topics.get(TASKS)
        for log in topic.logs if topic else ():
            for stored in self._world.rng.sample(log.records, min(3, len(log.records))):
                self._write(Outgoing(TASKS, stored.key, stored.value, stored.headers))

    def redrive(self) -> None:
        """Write dead letters back, some of them twice: to the inbox or to the main topic."""
        rng = self._world.rng
        for log in self._world.broker.topics[LETTERS].logs:
            for stored in rng.sample(log.records, min(4, len(log.records))):
                for _ in range(rng.choice((1, 1, 2))):
                    topic = rng.choice((INBOX, TASKS))
                    self._write(Outgoing(topic, stored.key, stored.value, stored.headers))

    def lose(self) -> None:
        """Make the broker lose a partition's records."""
        if topic := self._world.broker.topics.get(TASKS):
            self._world.broker.lose((TASKS, self._world.rng.randrange(len(topic.logs))))

    def grow(self) -> None:
        """Add a partition to each topic."""
        self._world.plan.partitions += 1
        self._apply_topics()

    def make_again(self) -> None:
        """Delete the main topic and create it again; somebody applies topics a while later."""
        self._world.broker.delete(TASKS)
        self._world.broker.create(TASKS, self._world.plan.partitions)
        self._later(1, 15, self._apply_topics)

    def retier(self) -> None:
        """Change the tiers: topics are applied, and agents are restarted one after another."""
        self._world.machine.tiers = NEW_TIERS
        self._apply_topics()
        for agent in [agent for agent in self._world.agents if agent.running]:
            self._later(1, 15, agent.stop)
            self._later(2, 20, self._world.start)

    def forget_offsets(self) -> None:
        """Make the broker forget all offsets, which it does only for groups without members."""
        for agent in self._world.agents:
            agent.kill()
        for member in self._world.broker.members():
            self._world.broker.evict(member)
        for group in self._world.broker.groups.values():
            group.committed.clear()
        self._world.start()

    def _write(self, record: Outgoing) -> None:
        if record.topic in self._world.broker.topics:
            self._world.broker.append(record)

    def _apply_topics(self) -> None:
        self.do("topics", people.apply_topics(self._world.machine, self._world.plan.partitions))

    # ---- people

    def cancel(self) -> None:
        """Cancel the batch."""
        self._world.cancelled = True
        self.do("cancel", people.cancel_batch(self._world.machine))

    def reopen(self) -> None:
        """Replay the cancelled tasks."""
        self._replay(cancelled=True)

    def replay(self) -> None:
        """Replay all dead letters, sometimes by two people at once.

        Nothing is replayed any more once all work is done.
        """
        if self._world.leaving:
            return
        self._replay(cancelled=False)
        if self._world.rng.random() < 0.4:
            self._replay(cancelled=False)

    async def replay_again(self) -> None:
        """Let two people replay dead letters at once.

        One replay is so slow that a task may have died of another error before its turn, and its
        command may be killed.
        """
        world = self._world
        self._replay(cancelled=False)
        slowest = (world.plan.tasks + world.plan.inbox) / _SLOW_REPLAY_S
        rate = max(slowest, world.rng.uniform(0.03, 0.5))
        self._replay(cancelled=False, rate=rate)
        if world.rng.random() < 0.5:
            return
        await world.clock.sleep(world.rng.uniform(0, 8))
        if self._replaying is not None:
            self._replaying.kill()
        self.do("resume-replay", people.resume_replays(world.machine))

    def kill_replay(self) -> None:
        """Kill a replay, and start it again a while later."""
        if self._replaying is not None and self._replaying.running:
            self._replaying.kill()
            self._later(0.5, 8, self.replay)

    def open_guards(self) -> None:
        """Open all raised guards."""
        if self._world.store.rows("SELECT 1 FROM guard WHERE opened_at IS NULL"):
            self.do("guard-open", people.open_guards(self._world.machine))

    def resume(self) -> None:
        """Let a route take calls again."""
        self.do("resume", people.resume_route(self._world.machine, self._world.rng.choice(_ROUTES)))

    def kill_load(self) -> None:
        """Kill the load."""
        self._world.loader.kill()

    def _replay(self, *, cancelled: bool, rate: float | None = None) -> None:
        self._replaying = self.do(
            "replay",
            people.replay_all(self._world.machine, cancelled=cancelled, rate=rate),
        )

    def do(self, name: str, work: Coroutine[Any, Any, None]) -> Program:
        program = Program(self._world.machine, f"{name}-{len(self._world.others) + 1}", work)
        self._world.others.append(program)
        return program

    def _later(self, least_s: float, most_s: float, what: Callable[[], object]) -> None:
        self._world.loop.call_later(self._world.rng.uniform(least_s, most_s), what)

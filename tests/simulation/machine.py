"""The parts that all programs of a run share, and those that each opens for itself."""

import random
from dataclasses import dataclass, field
from pathlib import Path

from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.inflight.limits import InFlightLimits
from docllm.producer.app import Parts
from docllm.producer.bus.topic_family import TopicFamily, with_old_tiers
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.runtime.outage import Outage
from docllm.schemas.settings.config import (
    AgentConfig,
    Config,
    InboxConfig,
    KafkaConfig,
    LLMConfig,
    RouteConfig,
    Trigger,
    TypeConfig,
)
from docllm.schemas.settings.kinds import BatchHook
from docllm.schemas.settings.quota import (
    NO_LIMITS,
    NamedLimit,
    QuotaLimits,
    TenantConfig,
    TenantDefaults,
)
from docllm.schemas.task.record.topics import Topics
from tests.invariants.happened import HandlerRun, LockUse, Use, UseLimit
from tests.simulation.broker import Broker
from tests.simulation.bus import SimSource
from tests.simulation.eventloop import VirtualClock, VirtualLoop
from tests.simulation.executor import SimExecutor
from tests.simulation.outputs import OUTPUTS, SimOutputs
from tests.simulation.provider import SimLLM
from tests.simulation.publisher import SimPublisher
from tests.simulation.quota import SimGrantStore, SimRedis
from tests.simulation.store import SimDatabase, Store
from tests.simulation.topic_admin import SimTopicAdmin
from tests.simulation.weather import Weather

GROUP, BATCH = "g", "b"
LEDGER_ID = bytes(range(16)).hex()
LLM_TIMEOUT_S, DRAIN_S = 20.0, 5.0
TIERS, NEW_TIERS = ("5s", "20s"), ("8s",)
SLOW, OTHER = "slow", "other"  # a route that is configured, and one that only tasks name
SPARE = "spare"  # where the others' tasks go on in a run with fallbacks
FALLBACK = {
    "default": RouteConfig(fallback=(SLOW,), fallback_on=tuple(Trigger)),
    SLOW: RouteConfig(fallback=(SPARE,), fallback_on=tuple(Trigger)),
    SPARE: RouteConfig(),
}
LATER = "later"  # a type that half of the agents know from the start, and all of them at the end
LOCKS = "locks"  # a type whose tasks hold one lock in turn
FAMILY, CHILDREN = "family", 2  # a type whose tasks order so many follow-ups, and a join
JOIN = "join"  # the type of these joins
HOOKED = "hooked"  # a type that has every hook
FRAGILE = "fragile"  # a type that runs in processes, and ends some of them
NARROW, NARROW_SLOTS = "narrow", 1  # a type with so many slots in each agent
SHARED, CRM = "shared", "crm"  # a type with a limit of the group, and the limit its handler names
# The limits of this type, and of what it uses.
USE_LIMITS = {SHARED: UseLimit(in_flight=3), CRM: UseLimit(in_flight=2, rpm=60)}
ONCE = "once"  # a type whose tasks must not run twice
POLLS, COME_BACKS = "polls", 2  # a type whose tasks come back so often before they call
HANDLED = (
    "raises",
    "kills",
    "waits",
    "hangs",
    "panics",
    LOCKS,
    FAMILY,
    JOIN,
    HOOKED,
    FRAGILE,
    NARROW,
    SHARED,
    POLLS,
    ONCE,
)
_HANDLERS = "tests.simulation.handlers"
PROBE_S = 8.0
COMPACT_AFTER_S = 10.0


def knows_later(program: str) -> bool:
    """Return whether an agent's first settings have the type that others lack."""
    return program.endswith(("0", "2", "4", "6", "8"))


@dataclass(slots=True)
class Machine:
    """The parts that all programs of a run share.

    `topic_ids` are those that `topics apply` stored. `sqlite` selects transactions as on the
    embedded parts.
    """

    loop: VirtualLoop
    rng: random.Random
    weather: Weather
    store: Store
    broker: Broker
    llm: SimLLM
    slots: int
    max_attempts: int
    sweep_slack_s: float
    sqlite: bool
    limits: InFlightLimits
    tiers: tuple[str, ...] = TIERS
    redrive: bool = False
    redis: SimRedis | None = None
    quota: QuotaLimits = NO_LIMITS
    fallback: bool = False
    hooks: bool = False
    lock_uses: list[LockUse] = field(default_factory=list)
    shared: bool = False
    uses: list[Use] = field(default_factory=list)
    handler_runs: list[HandlerRun] = field(default_factory=list)
    most_narrow: int = 0  # handlers of NARROW that ran at once in one agent
    hooks_run: list[tuple[int, str]] = field(default_factory=list)  # by task, event
    ends_told: list[tuple[int, int]] = field(default_factory=list)  # turn and round, of BATCH
    tenants: dict[str, TenantConfig] = field(default_factory=dict)
    overflow: int = 0
    outputs: SimOutputs = field(init=False)

    def __post_init__(self) -> None:
        """Make the object store, which outlives all programs."""
        self.outputs = SimOutputs(self.weather, self.clock())

    def clock(self) -> VirtualClock:
        """Return a program's clock."""
        return VirtualClock(self.loop)

    def executor(self, clock: VirtualClock, *, patient: bool = True, threads: int = 1) -> Executor:
        """Return a new executor."""
        return SimExecutor(weather=self.weather, clock=clock, patient=patient, threads=threads)

    def database(self, clock: VirtualClock) -> SimDatabase:
        """Return an access to the one database."""
        return SimDatabase(self.store, self.weather, clock, sqlite=self.sqlite)

    async def parts(self) -> Parts:
        """Return the parts that one program opens."""
        clock = self.clock()
        transactions = Transactions(database=self.database(clock), executor=self.executor(clock))
        topics = await transactions.read(
            with_old_tiers, Topics(GROUP, self.tiers, results=self.hooks)
        )
        admin = SimTopicAdmin(broker=self.broker, clock=clock, weather=self.weather)
        family = TopicFamily(admin=admin, transactions=transactions, topics=topics, clock=clock)
        publisher = SimPublisher(broker=self.broker, clock=clock, weather=self.weather)
        kafka = Outage(name="Kafka", clock=clock)
        return Parts(
            self._config(),
            topics,
            clock,
            transactions,
            admin,
            publisher,
            family,
            LEDGER_ID,
            kafka,
        )

    def source(self, parts: Parts, destination: str, topic_ids: StoredIdsReader) -> SimSource:
        """Return the consumer handle of one destination."""
        topics = parts.topics
        return SimSource(
            broker=self.broker,
            topics=[topics.name(destination)],
            group_id=topics.consumer_group(destination),
            topic_ids=topic_ids,
            clock=parts.clock,
            weather=self.weather,
        )

    def grant_store(self, clock: VirtualClock, name: str) -> SimGrantStore | None:
        """Return an agent's access to the grant store; None without Redis."""
        if self.redis is None:
            return None
        return SimGrantStore(redis=self.redis, agent=name, clock=clock)

    def _type(self, name: str) -> TypeConfig:
        """Return the settings of a type. Runs without such tasks have no hooks to look for."""
        handler = f"{_HANDLERS}:{name}"
        if name == HOOKED and self.hooks:
            hook = f"{_HANDLERS}:note"
            return TypeConfig(handler=handler, on_success=hook, on_retry=hook, on_dead=hook)
        return TypeConfig(
            handler=handler,
            run="process" if name == FRAGILE else "agent",
            on_loss="dead" if name == ONCE else "again",
            slots=NARROW_SLOTS if name == NARROW else None,
            in_flight=USE_LIMITS[SHARED].in_flight if name == SHARED and self.shared else None,
        )

    def _limits(self) -> dict[str, NamedLimit]:
        crm = USE_LIMITS[CRM]
        return {CRM: NamedLimit(in_flight=crm.in_flight, rpm=crm.rpm)}

    def _config(self) -> Config:
        return Config(
            data_dir=Path("/nonexistent"),
            kafka=KafkaConfig(bootstrap="simulated"),
            llm=LLMConfig(
                base_url="http://simulated", model="m", timeout_s=LLM_TIMEOUT_S, limits=self.quota
            ),
            agent=AgentConfig(
                slots=self.slots,
                drain_timeout_s=DRAIN_S,
                sweep_slack_s=self.sweep_slack_s,
                park_probe_s=PROBE_S,
                compact_after_s=COMPACT_AFTER_S,
            ),
            document_roots=(),
            document_allow=(OUTPUTS,),
            guard_probe_s=PROBE_S,
            inbox=InboxConfig(redrive=self.redrive),
            routes=FALLBACK if self.fallback else {SLOW: RouteConfig()},
            types={name: self._type(name) for name in HANDLED},
            retry_tiers=self.tiers,
            max_attempts=self.max_attempts,
            tenants=self.tenants,
            limits=self._limits() if self.shared else {},
            results_topic=self.hooks,
            on_batch_done=BatchHook(function=f"{_HANDLERS}:note_end") if self.hooks else None,
            tenant_defaults=TenantDefaults(overflow=self.overflow),
        )

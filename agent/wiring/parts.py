"""The parts of one agent, each built from the parts above it when it is first asked for."""

from collections.abc import Awaitable, Mapping
from functools import cached_property

from docllm.agent.dispatch.record_finisher import Wakeups
from docllm.agent.execution.admission import Admission
from docllm.agent.execution.attempt_runner import AttemptRunner
from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.guard_gate import GuardGate
from docllm.agent.execution.lock_requests import ResourceLocks
from docllm.agent.execution.observability.attempt_traces import AttemptTraces
from docllm.agent.execution.observability.observed_ledger import ObservedLedger
from docllm.agent.execution.output_writer import Outputs
from docllm.agent.execution.quota_gate import QuotaGate
from docllm.agent.execution.settler import Settler
from docllm.agent.execution.slots import Slots
from docllm.agent.execution.type_hours import TypeHours
from docllm.agent.execution.unknown_types import UnknownTypes
from docllm.agent.execution.waiting_uses import WaitingUses
from docllm.agent.inflight.decoder import RecordDecoder
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.intake.acceptance import Intake
from docllm.agent.judge import tiers_of
from docllm.agent.ledger.claims.claiming import handler_state
from docllm.agent.ledger.leases.lock_rows import SqlLockTable
from docllm.agent.ledger.returned_letters import ReturnedLetters
from docllm.agent.ledger.sql_ledger import SqlLedger
from docllm.agent.ports import Ledger, Source
from docllm.agent.ports.outcome import HandlerState
from docllm.agent.process.containment import MemoryWatch
from docllm.agent.process.failures import Failures
from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.agent.quota.quotas import Quotas
from docllm.agent.wiring.choices import AgentChoices
from docllm.agent.wiring.handlers import Handling
from docllm.agent.wiring.record_path import RecordPath
from docllm.producer.app import make_relay, messaging_system
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.settings.claim_time import claim_s


class AgentParts:
    """The parts that an agent's run and its duties need."""

    def __init__(self, choices: AgentChoices) -> None:
        parts = choices.parts
        self.choices = choices
        self.clock = parts.clock
        self.group = parts.topics.group
        self.relay = make_relay(parts)
        self.own_orders = OwnOrders(self.relay)
        self.failures = Failures()
        self.memory = MemoryWatch(parts.clock)
        self.wakeups = Wakeups()
        self.tiers = tiers_of(parts.topics.tiers)
        self.longest_tier = self.tiers[-1]
        self.claim_s = claim_s(choices.routes.longest_timeout_s, parts.config.types.values())

    def knows_type(self, name: str) -> bool:
        """Return whether the settings as they are at this moment know a type."""
        return self.choices.parts.config.knows_type(name)

    @cached_property
    def traces(self) -> AttemptTraces | None:
        """The recorder of this agent's attempt traces; None if nothing is traced."""
        parts = self.choices.parts
        if parts.spans is None:
            return None
        otel = parts.config.otel
        return AttemptTraces(
            spans=parts.spans,
            ledger=parts.ledger_id,
            group=self.group,
            system=messaging_system(parts.config),
            ratio=otel.ratio,
            to_provider=otel.to_provider,
            clock=self.clock,
        )

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, within what measures and traces its claims and settles."""
        parts, metrics = self.choices.parts, self.choices.metrics
        ledger = SqlLedger(
            database=parts.transactions.database,
            group=self.group,
            clock=self.clock,
            executors=self.choices.executors,
            longest_tier=self.longest_tier,
            hooked=lambda: parts.config.hooked,
            release=parts.config.agent.release,
            streams_results=parts.config.results_topic,
        )
        if metrics is None and self.traces is None:
            return ledger
        return ObservedLedger(ledger, clock=self.clock, metrics=metrics, traces=self.traces)

    def _state_of(self, task_id: int) -> Awaitable[HandlerState | None]:
        return self.choices.parts.transactions.read(handler_state, task_id)

    @cached_property
    def letters(self) -> ReturnedLetters:
        """The dead letters that come back on the topics that this agent reads."""
        parts = self.choices.parts
        return ReturnedLetters(
            transactions=parts.transactions,
            clock=self.clock,
            group=self.group,
            ledger_id=parts.ledger_id,
            redrive=parts.config.inbox.redrive,
        )

    @cached_property
    def guards(self) -> GuardGate:
        """The raised guards, which hold back tasks."""
        return GuardGate(clock=self.clock, longest_tier=self.longest_tier, ledger=self.ledger)

    @cached_property
    def quotas(self) -> QuotaGate:
        """The limits of accounts, tenants, types and resources."""
        configured = ConfiguredQuotas(config=self.choices.parts.config, group=self.group)
        quotas = Quotas(configured.find)
        return QuotaGate(quotas=quotas, configured=configured, clock=self.clock)

    @cached_property
    def uses(self) -> WaitingUses:
        """The uses of limits that handlers name."""
        gate = self.quotas
        return WaitingUses(quotas=gate.quotas, configured=gate.configured, clock=self.clock)

    @cached_property
    def locks(self) -> ResourceLocks:
        """The locks of handlers."""
        transactions = Transactions(
            database=self.choices.parts.transactions.database,
            executor=self.choices.executors.claim,
        )
        table = SqlLockTable(transactions=transactions, group=self.group)
        return ResourceLocks(table=table, clock=self.clock)

    @cached_property
    def type_hours(self) -> TypeHours:
        """The hours of types."""
        types = self.choices.parts.config.types
        return TypeHours(types=types, clock=self.clock)

    @cached_property
    def unknown_types(self) -> UnknownTypes:
        """The types that this agent's settings do not know."""
        return UnknownTypes(
            knows=self.knows_type,
            tiers=self.tiers,
            clock=self.clock,
        )

    @cached_property
    def handling(self) -> Handling:
        """The handlers and hooks. Raises ConfigError if they cannot be loaded."""
        return Handling(self.choices, failures=self.failures, memory=self.memory, limits=self.uses)

    @cached_property
    def outputs(self) -> Outputs:
        """Writes results outside the ledger."""
        allow = self.choices.parts.config.document_allow
        return Outputs(store=self.choices.outputs, allow=allow, clock=self.clock)

    @cached_property
    def settler(self) -> Settler:
        """Settles the outcomes of attempts."""
        limits, database = self.choices.limits, self.choices.parts.transactions.database
        return Settler(
            ledger=self.ledger,
            page_size=limits.sqlite_settle_page if database.sqlite else limits.settle_page,
            page_bytes=limits.settle_page_bytes,
            reply_limit_bytes=self.choices.reply_limit_bytes,
            own_orders=self.own_orders,
            at_once=self.choices.executors.settles_at_once,
        )

    @cached_property
    def suspects(self) -> CrashSuspects:
        """The tasks over which agents were lost."""
        return CrashSuspects()

    @cached_property
    def admission(self) -> Admission:
        """Decides which tasks may be claimed, and which may start."""
        return Admission(
            slots=self.choices.parts.config.agent.slots,
            leases=self.choices.heartbeat,
            routes=self.choices.routes,
            guards=self.guards,
            quotas=self.quotas,
            suspects=self.suspects,
            settler=self.settler,
            unknown_types=self.unknown_types,
            hours=self.type_hours,
            clock=self.clock,
        )

    @cached_property
    def slots(self) -> Slots:
        """Runs claimed tasks."""
        return Slots(
            admission=self.admission,
            guards=self.guards,
            suspects=self.suspects,
            attempt_runner=AttemptRunner(
                state_of=self._state_of,
                handlers=self.handling.handlers,
                locks=self.locks,
                outputs=self.outputs,
                clock=self.clock,
                claim_s=self.claim_s,
                traces=self.traces,
            ),
            settler=self.settler,
            longest_tier=self.longest_tier,
            unknown_types=self.unknown_types,
            hours=self.type_hours,
            clock=self.clock,
            counts=self.choices.counts,
            memory=self.memory,
            freed=self.wakeups.claim,
            claim_s=self.claim_s,
        )

    @cached_property
    def path(self) -> RecordPath:
        """The parts that decide about records."""
        choices, parts = self.choices, self.choices.parts
        return RecordPath(
            ledger=self.ledger,
            letters=self.letters,
            leases=choices.heartbeat,
            own_orders=self.own_orders,
            partitions=self._partitions(choices.sources),
            decoder=RecordDecoder(
                ledger_id=parts.ledger_id, group=self.group, naming=choices.routes.naming
            ),
            lanes=parts.topics.lanes,
            weight_of=lambda tenant: parts.config.tenant(tenant).weight,
            has_own_queue=lambda name: parts.config.type_settings(name).is_limited,
            admission=self.admission,
            slots=self.slots,
            wakeups=self.wakeups,
            failures=self.failures,
            clock=self.clock,
            counts=choices.counts,
            limits=choices.limits,
            claim_s=self.claim_s,
        )

    @cached_property
    def inbox_partitions(self) -> Partitions:
        """The partitions of the inbox."""
        inbox = self.choices.inbox
        return self._partitions({} if inbox is None else {"inbox": inbox})

    @cached_property
    def intake(self) -> Intake:
        """Takes new tasks from the inbox."""
        choices, parts = self.choices, self.choices.parts
        return Intake(
            partitions=self.inbox_partitions,
            transactions=parts.transactions,
            letters=self.letters,
            apart=choices.apart,
            clock=self.clock,
            counts=choices.counts,
            group=self.group,
            config=parts.config,
            own_orders=self.own_orders,
            failures=self.failures,
            memory=self.memory,
            limits=choices.limits,
        )

    def _partitions(self, sources: Mapping[str, Source]) -> Partitions:
        name = self.choices.parts.topics.name
        return Partitions(
            {name(destination): source for destination, source in sources.items()},
            limits=self.choices.limits,
        )

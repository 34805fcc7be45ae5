"""Composes the parts of one agent, each from those above it."""

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
from docllm.agent.judge import Tier, tiers_of
from docllm.agent.ledger.claims.claiming import handler_state
from docllm.agent.ledger.leases.lock_rows import SqlLockTable
from docllm.agent.ledger.returned_letters import ReturnedLetters
from docllm.agent.ledger.sql_ledger import SqlLedger
from docllm.agent.ports import Ledger
from docllm.agent.process.containment import MemoryWatch
from docllm.agent.process.failures import Failures
from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.agent.quota.quotas import Quotas
from docllm.agent.wiring.choices import AgentChoices
from docllm.agent.wiring.handlers import Handling
from docllm.agent.wiring.record_path import RecordPath
from docllm.producer.app import Parts, make_relay, messaging_system
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.settings.claim_time import claim_s


class AgentParts:
    """The parts that an agent's run and its duties need.

    Raises ConfigError if the handlers or hooks of the settings cannot be loaded.
    """

    def __init__(self, choices: AgentChoices) -> None:
        parts, limits = choices.parts, choices.limits
        database = parts.transactions.database
        self.choices = choices
        self.clock = parts.clock
        self.group = parts.topics.group
        self.relay = make_relay(parts)
        self.own_orders = OwnOrders(self.relay)
        self.failures = Failures()
        self.memory = MemoryWatch(parts.clock)
        self.wakeups = Wakeups()
        self.claim_s = claim_s(choices.routes.longest_timeout_s, parts.config.types.values())
        tiers = tiers_of(parts.topics.tiers)
        traces = _make_traces(parts)
        ledger = _make_ledger(choices, traces, longest_tier=tiers[-1])
        letters = ReturnedLetters(
            transactions=parts.transactions,
            clock=self.clock,
            group=self.group,
            ledger_id=parts.ledger_id,
            redrive=parts.config.inbox.redrive,
        )

        # What holds tasks back.
        self.guards = GuardGate(clock=self.clock, longest_tier=tiers[-1], ledger=ledger)
        configured = ConfiguredQuotas(config=parts.config, group=self.group)
        quotas = Quotas(configured.find)
        self.quotas = QuotaGate(quotas=quotas, configured=configured, clock=self.clock)
        self.uses = WaitingUses(quotas=quotas, configured=configured, clock=self.clock)
        claims = Transactions(database=database, executor=choices.executors.claim)
        self.locks = ResourceLocks(
            table=SqlLockTable(transactions=claims, group=self.group), clock=self.clock
        )
        self.type_hours = TypeHours(types=parts.config.types, clock=self.clock)
        self.unknown_types = UnknownTypes(knows=self.knows_type, tiers=tiers, clock=self.clock)

        # From a claimed task to its settled outcome.
        self.handling = Handling(
            choices, failures=self.failures, memory=self.memory, limits=self.uses
        )
        settler = Settler(
            ledger=ledger,
            page_size=limits.sqlite_settle_page if database.sqlite else limits.settle_page,
            page_bytes=limits.settle_page_bytes,
            reply_limit_bytes=choices.reply_limit_bytes,
            own_orders=self.own_orders,
            at_once=choices.executors.settles_at_once,
        )
        self.settler = settler
        self.admission = Admission(
            slots=parts.config.agent.slots,
            leases=choices.heartbeat,
            routes=choices.routes,
            guards=self.guards,
            quotas=self.quotas,
            suspects=CrashSuspects(),
            settler=settler,
            unknown_types=self.unknown_types,
            hours=self.type_hours,
            clock=self.clock,
        )
        self.slots = Slots(
            admission=self.admission,
            attempt_runner=AttemptRunner(
                state_of=lambda task_id: parts.transactions.read(handler_state, task_id),
                handlers=self.handling.handlers,
                locks=self.locks,
                outputs=Outputs(
                    store=choices.outputs, allow=parts.config.document_allow, clock=self.clock
                ),
                clock=self.clock,
                claim_s=self.claim_s,
                traces=traces,
            ),
            settler=settler,
            longest_tier=tiers[-1],
            clock=self.clock,
            counts=choices.counts,
            memory=self.memory,
            freed=self.wakeups.claim,
            claim_s=self.claim_s,
        )

        # Where records come from.
        name = parts.topics.name
        self.path = RecordPath(
            ledger=ledger,
            letters=letters,
            leases=choices.heartbeat,
            own_orders=self.own_orders,
            partitions=Partitions(
                {name(destination): source for destination, source in choices.sources.items()},
                limits=limits,
            ),
            decoder=RecordDecoder(
                ledger_id=parts.ledger_id, group=self.group, naming=choices.routes.naming
            ),
            lanes=parts.topics.lanes,
            weight_of=lambda tenant: parts.config.tenant(tenant).weight,
            has_own_queue=lambda task_type: parts.config.type_settings(task_type).is_limited,
            admission=self.admission,
            slots=self.slots,
            wakeups=self.wakeups,
            failures=self.failures,
            clock=self.clock,
            counts=choices.counts,
            limits=limits,
            claim_s=self.claim_s,
        )
        self.inbox_partitions = Partitions(
            {} if choices.inbox is None else {name("inbox"): choices.inbox}, limits=limits
        )
        self.intake = Intake(
            partitions=self.inbox_partitions,
            transactions=parts.transactions,
            letters=letters,
            apart=choices.apart,
            clock=self.clock,
            counts=choices.counts,
            group=self.group,
            config=parts.config,
            own_orders=self.own_orders,
            failures=self.failures,
            memory=self.memory,
            limits=limits,
        )

    def knows_type(self, name: str) -> bool:
        """Return whether the settings as they are at this moment know a type."""
        return self.choices.parts.config.knows_type(name)


def _make_traces(parts: Parts) -> AttemptTraces | None:
    """Return the recorder of this agent's attempt traces; None if nothing is traced."""
    if parts.spans is None:
        return None
    return AttemptTraces(
        spans=parts.spans,
        ledger=parts.ledger_id,
        group=parts.topics.group,
        system=messaging_system(parts.config),
        ratio=parts.config.otel.ratio,
        to_provider=parts.config.otel.to_provider,
        clock=parts.clock,
    )


def _make_ledger(
    choices: AgentChoices, traces: AttemptTraces | None, *, longest_tier: Tier
) -> Ledger:
    """Return the ledger, within what measures and traces its claims and settles."""
    parts, metrics = choices.parts, choices.metrics
    ledger = SqlLedger(
        database=parts.transactions.database,
        group=parts.topics.group,
        clock=parts.clock,
        executors=choices.executors,
        longest_tier=longest_tier,
        hooked=lambda: parts.config.hooked,
        release=parts.config.agent.release,
        streams_results=parts.config.results_topic,
    )
    if metrics is None and traces is None:
        return ledger
    return ObservedLedger(ledger, clock=parts.clock, metrics=metrics, traces=traces)

"""What `docllm.agent.app`, or a simulation, chooses for an agent: here the two differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from docllm.agent.agent import Membership
from docllm.agent.documents.conversion.by_content import TextMaker
from docllm.agent.handlers.processes.pool import HandlerProcesses
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.ledger.sql_ledger import Executors
from docllm.agent.maintenance.duty import DutyLoop
from docllm.agent.maintenance.monitoring.loop_watch import LoopWatch
from docllm.agent.membership.heartbeat import Heartbeat
from docllm.agent.membership.life_locks import LifeLocks
from docllm.agent.ports import Source
from docllm.agent.quota.grants import GrantStore
from docllm.agent.reporting.latest_report import LatestReport
from docllm.agent.reporting.telemetry import Counts
from docllm.agent.routes import Router
from docllm.agent.routes.clients import RouteClients
from docllm.agent.wiring.live_settings import Rereading
from docllm.producer.app import Parts
from docllm.schemas.agent_report import AgentReport
from docllm.schemas.objects.write_once import WriteOnceStore
from docllm.schemas.runtime.executors import Executor

if TYPE_CHECKING:
    from docllm.agent.reporting.metrics import AgentMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Handles:
    """The consumer handles: `sources` by destination, and the inbox's if this agent reads it."""

    sources: Mapping[str, Source]
    inbox: Source | None

    @property
    def by_destination(self) -> Mapping[str, Source]:
        """All handles, with the inbox's."""
        return self.sources if self.inbox is None else {**self.sources, "inbox": self.inbox}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The threads and processes that work for an agent beside its event loop.

    `executors` run SQL and `reading` reads documents. `apart` does what would stop this process,
    such as parsing large JSON. `processes` run handlers, and `converters` make texts of documents.
    """

    executors: Executors
    reading: Executor
    apart: Executor
    processes: HandlerProcesses
    converters: TextMaker


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """The routes and clients that take calls.

    Without a `grant_store`, the agent keeps to its share of the providers' limits.
    """

    routes: Router
    route_clients: RouteClients
    grant_store: GrantStore | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The agent's place in its group: its lease, and the locks that prove an agent's death."""

    heartbeat: Heartbeat
    membership: Membership
    locks: LifeLocks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruments:
    """The parts that tell how an agent does.

    `form` is a report with the fields that seldom change; `latest` receives each report. `watch`
    watches the event loop; a simulation has none. There are no `metrics` if nobody can read them.
    """

    counts: Counts
    latest: LatestReport
    form: AgentReport
    watch: LoopWatch | None = None
    metrics: "AgentMetrics | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChoices:
    """All that is chosen for one agent.

    `outputs` keeps results outside the ledger. `duties` run beside the agent's own. `rereading` is
    how the agent reads its settings again, if it does.
    """

    parts: Parts
    limits: InFlightLimits
    handles: Handles
    workers: Workers
    outputs: WriteOnceStore
    providers: Providers
    registration: Registration
    instruments: Instruments
    reply_limit_bytes: int
    jitter: Callable[[], float]
    duties: Sequence[DutyLoop]
    rereading: Rereading | None = None

    def knows_type(self, name: str) -> bool:
        """Return whether the settings as they are at this moment know a type."""
        return self.parts.config.knows_type(name)

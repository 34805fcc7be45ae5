"""What `docllm.agent.app`, or a simulation, chooses for an agent: here the two differ."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from docllm.agent.agent import Membership
from docllm.agent.documents.conversion.converters import Converters
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
from docllm.producer.app import Parts
from docllm.schemas.agent_report import AgentReport
from docllm.schemas.objects.write_once import OutputStore
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.settings.config import Config

if TYPE_CHECKING:
    from docllm.agent.reporting.metrics import AgentMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Rereading:
    """How an agent reads its settings again.

    `load` reads them, `form` returns the report with what follows from them, and `request` is made
    by a signal.
    """

    load: Callable[[], Config]
    form: Callable[[Config], AgentReport]
    request: asyncio.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChoices:
    """All that is chosen for one agent.

    - Records come from `sources`, by destination, and from the `inbox` if this agent reads it.
    - `executors` run SQL and `reading` reads documents. `apart` does what would stop this process,
      such as parsing large JSON. `processes` run handlers, `converters` make texts of documents.
    - `outputs` keeps results outside the ledger.
    - Without a `grant_store`, the agent keeps to its share of the providers' limits.
    - `heartbeat` keeps the lease, and `locks` prove that an agent has died.
    - `form` is a report with the fields that seldom change; `latest` receives each report. `watch`
      watches the event loop. There are no `metrics` if nobody can read them.
    - `duties` run beside the agent's own. `rereading` is how the agent reads its settings again.
    """

    parts: Parts
    limits: InFlightLimits
    sources: Mapping[str, Source]
    inbox: Source | None
    executors: Executors
    reading: Executor
    apart: Executor
    processes: HandlerProcesses
    converters: Converters
    outputs: OutputStore
    routes: Router
    route_clients: RouteClients
    grant_store: GrantStore | None
    heartbeat: Heartbeat
    membership: Membership
    locks: LifeLocks | None = None
    counts: Counts
    latest: LatestReport
    form: AgentReport
    watch: LoopWatch | None = None
    metrics: "AgentMetrics | None" = None
    reply_limit_bytes: int
    jitter: Callable[[], float]
    duties: Sequence[DutyLoop]
    rereading: Rereading | None = None

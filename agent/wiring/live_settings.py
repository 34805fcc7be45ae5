"""Applies changed settings to a running agent; steps that may fail come first."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from docllm.agent.execution.type_limits import TypeLimits
from docllm.agent.execution.unknown_types import UnknownTypes
from docllm.agent.handlers import Handler, Handlers, Tools
from docllm.agent.handlers.claim_time import CLAIM_MARGIN_S, claim_s
from docllm.agent.hooks.functions import Hook, Hooks
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.intake.acceptance import Intake
from docllm.agent.maintenance.duty import DutyLoop
from docllm.agent.maintenance.monitoring.reporter import Reporter
from docllm.agent.maintenance.waits.call_up_walk import CallUpWalk
from docllm.agent.maintenance.waits.guard_keeper import GuardKeeper
from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.agent.reporting.telemetry import Counts
from docllm.agent.routes import Router
from docllm.agent.routes.clients import RouteClients, keys_in_clear
from docllm.producer.app import Parts
from docllm.schemas.agent_report import AgentReport
from docllm.schemas.clients.llm_address import environment_proxies
from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.settings.changes import fixed_changes, longest_timeout_s
from docllm.schemas.settings.config import Config, TypeConfig
from docllm.schemas.settings.rereading import RereadRequest, SettingsReader
from docllm.schemas.task.hooks import HookKind

log = logging.getLogger(__name__)

TIDY_S = 10.0

LoadHandlers = Callable[[Mapping[str, TypeConfig]], Mapping[str, Handler]]
LoadHooks = Callable[[Mapping[str, TypeConfig]], Mapping[HookKind, Hook]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rereading:
    """How an agent reads its settings again.

    `load` reads them, `form` returns the report with what follows from them, and `request` is made
    by a signal.
    """

    load: Callable[[], Config]
    form: Callable[[Config], AgentReport]
    request: RereadRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """The parts of an agent that use settings which may change. `tools` makes those of handlers."""

    parts: Parts
    routes: Router
    table: InFlightTable
    route_clients: RouteClients
    handlers: Handlers
    load_handlers: LoadHandlers
    hooks: Hooks
    load_hooks: LoadHooks
    tools: Callable[[], Tools]
    quotas: ConfiguredQuotas
    intake: Intake
    keeper: GuardKeeper
    unknown_types: UnknownTypes
    type_limits: TypeLimits
    call_up: CallUpWalk
    reporter: Reporter
    form: Callable[[Config], AgentReport]
    claim_s: float

    def apply(self, config: Config) -> None:
        """Use changed settings. Raises ConfigError if they cannot be used; nothing has changed."""
        old = self.parts.config
        self._require_possible(old, config)
        by_type, by_kind = self.load_handlers(config.types), self.load_hooks(config.types)
        route_clients = self.route_clients.prepared(config)
        now_s = self.parts.clock.now_s()
        idle_from_s = now_s + longest_timeout_s(old) + CLAIM_MARGIN_S
        self.route_clients.apply(route_clients, idle_from_s)
        self.parts.config = config
        for name in self.routes.apply(config, now_s):
            log.info("route %s has another account and is tried again", name)
        tools = self.tools()
        self.handlers.apply(tools=tools, by_type=by_type)
        self.hooks.apply(tools=tools, by_kind=by_kind)
        self.quotas.apply(config)
        self.type_limits.apply(config.types)
        self.intake.apply(config)
        self.keeper.probe_s = config.guard.probe_s
        self.reporter.form = self.form(config)
        if (config.llm, config.routes, config.types) != (old.llm, old.routes, old.types):
            self.table.renew_plans(self.routes.naming.renewed)
            self.unknown_types.forget_refusals()
            self.call_up.settings_changed()
        for warning in keys_in_clear(config, environment_proxies()):
            log.warning("%s", warning, extra={"code": Code.KEY_IN_CLEAR})

    def _require_possible(self, old: Config, config: Config) -> None:
        """Refuse changes that a running agent cannot apply; the error names the settings."""
        names = [*fixed_changes(old, config), *self._too_long(config)]
        if names:
            raise ConfigError(
                f"{', '.join(names)} cannot change so while an agent runs; restart the agents, or "
                "take the change back"
            )

    def _too_long(self, config: Config) -> Sequence[str]:
        """Return the time limits that do not fit into the claims of this agent."""
        if claim_s(longest_timeout_s(config), config.types.values()) <= self.claim_s:
            return ()
        most_s = self.claim_s - CLAIM_MARGIN_S
        limits = {
            "llm.timeout_s": config.llm.timeout_s,
            **{
                f"routes.{name}.timeout_s": settings.timeout_s
                for name, settings in config.routes.items()
            },
            **{
                f"types.{name}.time_limit_s": settings.time_limit_s
                for name, settings in config.types.items()
            },
        }
        return [
            name for name, limit_s in limits.items() if limit_s is not None and limit_s > most_s
        ]


def make_reread_duties(
    live: LiveSettings, how: Rereading, *, counts: Counts, executor: Executor
) -> Sequence[DutyLoop]:
    """Return the duties that read the settings again, and close clients that nobody uses then."""
    clock, route_clients = live.parts.clock, live.route_clients
    reader = SettingsReader(
        config=live.parts.config,
        load=how.load,
        apply=live.apply,
        refused=counts.note_settings_refused,
        request=how.request,
        executor=executor,
        clock=clock,
    )

    async def tidy() -> None:
        while True:
            await clock.sleep(TIDY_S)
            await route_clients.close_retired(clock.now_s())

    return (reader.run, tidy)

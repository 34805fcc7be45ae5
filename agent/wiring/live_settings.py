"""Applies changed settings to a running agent; steps that may fail come first."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from docllm.agent.maintenance.duty import DutyLoop
from docllm.agent.maintenance.monitoring.reporter import Reporter
from docllm.agent.maintenance.waits.guard_keeper import GuardKeeper
from docllm.agent.maintenance.waits.waker import Waker
from docllm.agent.routes.clients import keys_in_clear
from docllm.agent.wiring.group_rules import store_group_rules
from docllm.agent.wiring.parts import AgentParts
from docllm.schemas.clients.llm_address import environment_proxies
from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.ledger.database import DatabaseError
from docllm.schemas.settings.changes import fixed_changes, longest_timeout_s
from docllm.schemas.settings.claim_time import CLAIM_MARGIN_S, claim_s
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.rereading import SettingsReader

log = logging.getLogger(__name__)

TIDY_S = 10.0


@dataclass(slots=True, eq=False)
class LiveSettings:
    """The settings of a running agent, and the parts that use them and are no `AgentParts`."""

    made: AgentParts
    keeper: GuardKeeper
    waker: Waker
    reporter: Reporter

    async def apply(self, config: Config) -> None:
        """Use changed settings.

        Raises ConfigError if they cannot be used, and UnreachableError if they cannot be used now;
        then nothing has changed.
        """
        made, choices, parts = self.made, self.made.choices, self.made.choices.parts
        handling, rereading, old = made.handling, choices.rereading, parts.config
        self._require_possible(old, config)
        by_type, by_kind = handling.load_handlers(config.types), handling.load_hooks(config.types)
        use_clients = choices.route_clients.prepare(config)
        try:
            await store_group_rules(parts, config)
        except DatabaseError as error:
            raise UnreachableError(
                f"the database does not answer: {getattr(error, 'orig', error)}"
            ) from error
        now_s = made.clock.now_s()
        use_clients(now_s + longest_timeout_s(old) + CLAIM_MARGIN_S)
        parts.config = config
        for name in choices.routes.apply(config, now_s):
            log.info("route %s has another account and is tried again", name)
        tools = handling.tools()
        handling.handlers.apply(tools=tools, by_type=by_type)
        handling.hooks.apply(tools=tools, by_kind=by_kind)
        made.quotas.configured.apply(config)
        made.type_hours.apply(config.types)
        made.intake.apply(config)
        self.keeper.probe_s = config.guard_probe_s
        if rereading is not None:
            self.reporter.form = rereading.form(config)
        if (config.llm, config.routes, config.types) != (old.llm, old.routes, old.types):
            made.path.table.renew_plans(choices.routes.naming.renewed)
            made.unknown_types.forget_refusals()
            self.waker.settings_changed()
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
        if claim_s(longest_timeout_s(config), config.types.values()) <= self.made.claim_s:
            return ()
        most_s = self.made.claim_s - CLAIM_MARGIN_S
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


def make_reread_duties(live: LiveSettings) -> Sequence[DutyLoop]:
    """Return the duties that read the settings again, and close clients that nobody uses then."""
    choices, clock = live.made.choices, live.made.clock
    how, route_clients = choices.rereading, choices.route_clients
    if how is None:
        return ()
    reader = SettingsReader(
        config=choices.parts.config,
        load=how.load,
        apply=live.apply,
        refused=choices.counts.note_settings_refused,
        request=how.request,
        executor=choices.reading,
        clock=clock,
    )

    async def tidy() -> None:
        while True:
            await clock.sleep(TIDY_S)
            await route_clients.close_retired(clock.now_s())

    return (reader.run, tidy)

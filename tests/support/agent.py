"""An agent whose parts do nothing, and note when it calls them."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from unittest.mock import create_autospec

from docllm.agent.agent import Agent, Membership
from docllm.agent.dispatch.claimer import Claimer
from docllm.agent.dispatch.dispatcher import Dispatcher
from docllm.agent.dispatch.ticker import Ticker
from docllm.agent.execution.admission import Admission
from docllm.agent.execution.settler import Settler
from docllm.agent.execution.slots import Slots
from docllm.agent.hooks.runner import HookRunner
from docllm.agent.intake.acceptance import Intake
from docllm.agent.maintenance.duty import DutyLoop
from docllm.agent.maintenance.group_work import GroupWork
from docllm.agent.ports import AtRest, Source
from docllm.agent.process.failures import Failures
from docllm.agent.reporting.telemetry import Counts
from docllm.producer.publishing.own_orders import OwnOrders
from tests.support.clock import HandClock

# The calls of a drain that may wait: the part, and its method.
STEPS = (
    ("source", "leave"),
    ("slots", "drain"),
    ("claimer", "wait_for_claim"),
    ("settler", "wait_until_idle"),
    ("hooks", "drain"),
    ("own_orders", "flush"),
    ("membership", "leave"),
)


double = partial(create_autospec, instance=True, spec_set=True)  # without attributes of its own


async def for_ever(*_: object, **_named: object) -> None:
    """Work until cancelled."""
    await asyncio.Event().wait()


class AgentHarness:
    """An agent of a group that has no work; `steps` are the calls of its drain that may wait.

    A step whose name is in `stuck` never ends. Each one takes as long as `taken_s` says.
    """

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.stuck: set[str] = set()
        self.taken_s: dict[str, float] = {}
        self.clock, self.counts, self.failures = HandClock(), Counts(), Failures()
        self.duties: list[DutyLoop] = []
        self.dispatcher = double(Dispatcher)
        self.claimer = double(Claimer)
        self.ticker = double(Ticker)
        self.admission = double(Admission)
        self.slots = double(Slots, running=0)
        self.settler = double(Settler, queued=0, unsettled=0)
        self.intake = double(Intake, idle=True)
        self.source = double(Source)
        self.source.at_rest.return_value = AtRest(joined=True, lag=0)
        self.own_orders = double(OwnOrders)
        self.hooks = double(HookRunner, kinds=frozenset(), unwritten=0)
        self.hooks.busy.return_value = False
        self.group_work = double(GroupWork)
        for question in ("any_open_task", "count_orders", "any_work", "any_dead"):
            getattr(self.group_work, question).return_value = 0
        self.membership = double(Membership)
        for endless in (
            self.claimer.ask_forever,
            self.claimer.claim_forever,
            self.ticker.run,
            self.settler.run,
            self.intake.run,
        ):
            endless.side_effect = for_ever
        for part, method in STEPS:
            getattr(getattr(self, part), method).side_effect = self._step(f"{part}.{method}")

    def _step(self, name: str) -> Callable[..., Awaitable[None]]:
        async def step(*_: object, **_named: object) -> None:
            self.steps.append(name)
            self.clock.at_s += self.taken_s.get(name, 0.0)
            if name in self.stuck:
                await for_ever()

        return step

    def agent(self) -> Agent:
        """Return the agent."""
        return Agent(
            dispatcher=self.dispatcher,
            claimer=self.claimer,
            ticker=self.ticker,
            admission=self.admission,
            slots=self.slots,
            settler=self.settler,
            intake=self.intake,
            sources=[self.source],
            inbox=None,
            own_orders=self.own_orders,
            failures=self.failures,
            hooks=self.hooks,
            group_work=self.group_work,
            duties=self.duties,
            clock=self.clock,
            counts=self.counts,
            membership=self.membership,
        )

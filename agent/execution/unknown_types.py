"""Holds tasks whose type this agent does not know, or for which it has no allowed route.

Such a task is not run as another type and not given up: another agent may know its type, or this
agent may after a change of settings. It waits uncounted in the ledger, for the delay of each retry
tier in turn, and then repeatedly for that of the longest. Each of its records may go to another
partition, so that other agents of a mixed group meet it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from docllm.agent.inflight.delivery import Delivery
from docllm.agent.judge import SPREAD, Tier
from docllm.agent.judge.tiers import move
from docllm.agent.ports import Clock
from docllm.agent.ports.outcome import Failure, Moved, Spent
from docllm.schemas.agent_report import Reason
from docllm.schemas.codes import Code
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.waits import NO_ROUTE, WaitReason

REMEMBERED = 20  # names of unknown types; they come from tasks, so there may be any number
SHOWN_REASONS = 5
_SLACK_S = 60.0  # time by which a due task has certainly returned to some agent


@dataclass(kw_only=True, eq=False)
class UnknownTypes:
    """The unknown types that an agent has met. `tiers` are the retry tiers, the shortest first."""

    knows: Callable[[str], bool]
    tiers: Sequence[Tier]
    clock: Clock

    def __post_init__(self) -> None:
        # How long each reason is shown, the last one met last.
        self._until_s: dict[Reason, float] = {}

    def move(self, delivery: Delivery) -> Moved:
        """Return the outcome of a claimed task of an unknown type."""
        row = delivery.row
        if row is None:
            raise AssertionError(f"task {delivery.task_id} is not claimed")
        failure = Failure(
            ErrorClass.UNKNOWN_TYPE, f"no agent that received it knows type {row.type}"
        )
        return self._hold(
            delivery, failure, WaitReason.TYPE, row.type, Reason(Code.TYPE_UNKNOWN, row.type)
        )

    def move_for_route(self, delivery: Delivery, why: str) -> Moved:
        """Return the outcome of a claimed task that may take no route of this agent."""
        shown = Reason(Code.ROUTE_REFUSED, delivery.plan.route, text=why)
        return self._hold(
            delivery, Failure(ErrorClass.ROUTE, why), WaitReason.ROUTE, NO_ROUTE, shown
        )

    def _hold(
        self, delivery: Delivery, failure: Failure, reason: WaitReason, key: str, shown: Reason
    ) -> Moved:
        """Let a task wait; each wait raises its fence, and so it waits longer each time."""
        waits = min(delivery.publication.fence, len(self.tiers) - 1)
        delay_s = self.tiers[waits].delay_s
        self._remember(shown, delay_s * (1 + SPREAD) + _SLACK_S)
        return move(failure, Spent(), delivery.task_id, reason=reason, key=key, delay_s=delay_s)

    def forget_refusals(self) -> None:
        """Forget the refusals by routes, because the routes changed. Those that last come again."""
        self._until_s = {
            reason: end_s
            for reason, end_s in self._until_s.items()
            if reason.code != Code.ROUTE_REFUSED
        }

    def reasons(self, now_s: float) -> list[Reason]:
        """Return which tasks wait, for the agent's report.

        Types that the settings have gained since are left out: their tasks only wait for their
        tiers to end.
        """
        self._until_s = {
            reason: end_s
            for reason, end_s in self._until_s.items()
            if end_s > now_s and not self._is_known_now(reason)
        }
        return sorted(self._until_s, key=attrgetter("code", "name", "text"))[:SHOWN_REASONS]

    def _is_known_now(self, reason: Reason) -> bool:
        return reason.code == Code.TYPE_UNKNOWN and self.knows(reason.name)

    def _remember(self, reason: Reason, for_s: float) -> None:
        until_s = max(self._until_s.pop(reason, 0.0), self.clock.now_s() + for_s)
        self._until_s[reason] = until_s
        if len(self._until_s) > REMEMBERED:
            del self._until_s[next(iter(self._until_s))]

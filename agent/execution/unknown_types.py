"""Holds tasks whose type this agent does not know, or for which it has no allowed route.

Such a task is not run as another type and not given up: another agent may know its type, or this
agent may after a change of settings. It waits uncounted in each retry tier in turn, and then
repeatedly in the longest. Each of its records goes to another partition of the tier, so that other
agents of a mixed group meet it.
"""

from collections.abc import Callable, Container, Sequence
from operator import attrgetter

from docllm.agent.inflight.delivery import Delivery
from docllm.agent.judge import SPREAD, Tier
from docllm.agent.judge.tiers import move_to
from docllm.agent.ports import Clock
from docllm.agent.ports.outcome import Failure, Moved, Spent
from docllm.schemas.agent_report import Reason
from docllm.schemas.codes import Code
from docllm.schemas.task.failures import ErrorClass

REMEMBERED = 20  # names of unknown types; they come from tasks, so there may be any number
SHOWN_REASONS = 5
_SLACK_S = 60.0  # time by which a due task has certainly returned to some agent


class UnknownTypes:
    """The unknown types that an agent has met. `tiers` are the retry tiers, the shortest first.

    `lane_topics` are the topics from which tasks come that have waited in no tier.
    """

    def __init__(
        self,
        *,
        knows: Callable[[str], bool],
        tiers: Sequence[Tier],
        lane_topics: Container[str],
        clock: Clock,
    ) -> None:
        self.knows = knows
        self._lane_topics = lane_topics
        self._tiers = tiers
        self._clock = clock
        # How long each reason is shown, the last one met last.
        self._until_s: dict[Reason, float] = {}

    def move(self, delivery: Delivery) -> Moved:
        """Return the outcome of a claimed task of an unknown type: it waits in the next tier."""
        row = delivery.row
        if row is None:
            raise AssertionError(f"task {delivery.task_id} is not claimed")
        failure = Failure(
            ErrorClass.UNKNOWN_TYPE, f"no agent that received it knows type {row.type}"
        )
        return self._hold(delivery, failure, Reason(Code.TYPE_UNKNOWN, row.type))

    def move_for_route(self, delivery: Delivery, why: str) -> Moved:
        """Return the outcome of a claimed task that may take no route of this agent."""
        reason = Reason(Code.ROUTE_REFUSED, delivery.plan.route, text=why)
        return self._hold(delivery, Failure(ErrorClass.ROUTE, why), reason)

    def _hold(self, delivery: Delivery, failure: Failure, reason: Reason) -> Moved:
        tier = self._next_tier(delivery.partition.topic)
        self._remember(reason, tier.delay_s * (1 + SPREAD) + _SLACK_S)
        return move_to(tier, failure, Spent(), delivery.task_id)

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

    def _next_tier(self, topic: str) -> Tier:
        """Return the tier after that of a record's topic, at most the longest one."""
        if topic in self._lane_topics:
            return self._tiers[0]
        came_from = topic.rpartition(".")[2]
        later = [number for number, tier in enumerate(self._tiers) if tier.name == came_from]
        return self._tiers[min(later[0] + 1, len(self._tiers) - 1)] if later else self._tiers[-1]

    def _remember(self, reason: Reason, for_s: float) -> None:
        until_s = max(self._until_s.pop(reason, 0.0), self._clock.now_s() + for_s)
        self._until_s[reason] = until_s
        if len(self._until_s) > REMEMBERED:
            del self._until_s[next(iter(self._until_s))]

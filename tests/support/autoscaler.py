"""A group of agents that an autoscaler follows, on virtual time: KEDA, Kubernetes and the pods.

The rules are those of KEDA 2.21 and of Kubernetes' HorizontalPodAutoscaler (autoscaling/v2), with
the numbers of `deploy/kubernetes/components/keda`. No real one runs in the tests.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, inf
from random import Random

from docllm.producer.metrics.scale import ProviderAccount, Scale, Workload
from docllm.schemas.settings.quota import NO_LIMITS, QuotaLimits

CHECK_EVERY_S = 15  # between two checks of the autoscaler
POD_START_S = 30
TOLERANCE = 0.1
LESS_WINDOW_S, MORE_WINDOW_S = 600, 30
COOLDOWN_S = 600  # without work, until the last agent is stopped
MORE_SHARE, MORE_PODS, LESS_SHARE, LESS_PODS = 1.0, 2, 0.25, 1  # in a minute, what is more of both
MINUTE_S = 60
LAG_S = 15  # of heartbeats and of the exporter


@dataclass
class Autoscaler:
    """How many pods there are. `look` is called every `CHECK_EVERY_S` seconds."""

    pods: int = 0
    changes: list[tuple[int, int]] = field(default_factory=list)  # when, and the difference
    _wanted: deque[tuple[int, int]] = field(default_factory=deque)
    _were: deque[tuple[int, int]] = field(default_factory=deque)
    _worked_s: int = 0

    def look(self, now_s: int, desired: int | None) -> None:
        """Follow the signal; None is an answer that did not come, and nothing changes."""
        self._were.append((now_s, self.pods))
        _forget(self._were, now_s - MINUTE_S)
        if desired is None:
            return
        self._worked_s = now_s if desired else self._worked_s
        pods = self._with_keda(now_s, desired) if min(self.pods, desired) == 0 else None
        if pods is None:
            pods = self._with_tolerance(now_s, max(1, desired))
        if pods != self.pods:
            self.changes.append((now_s, pods - self.pods))
            self.pods = pods

    def _with_keda(self, now_s: int, desired: int) -> int | None:
        """Return KEDA's number: it alone starts the first pod and stops the last one."""
        if not self.pods:
            self._wanted.clear()
            return min(1, desired)
        return 0 if now_s - self._worked_s >= COOLDOWN_S else None

    def _with_tolerance(self, now_s: int, desired: int) -> int:
        is_near = abs(desired / self.pods - 1) <= TOLERANCE
        self._wanted.append((now_s, self.pods if is_near else desired))
        _forget(self._wanted, now_s - LESS_WINDOW_S)
        most = max(pods for _, pods in self._wanted)
        least = min(pods for at_s, pods in self._wanted if at_s >= now_s - MORE_WINDOW_S)
        steady = min(max(self.pods, least), most)
        fewest, highest = (rule(pods for _, pods in self._were) for rule in (min, max))
        more = max(int(fewest * (1 + MORE_SHARE)), fewest + MORE_PODS)
        fewer = min(int(highest * (1 - LESS_SHARE)), highest - LESS_PODS)
        return max(min(steady, more), min(fewer, self.pods))


@dataclass
class Group:
    """Tasks, agents and a provider that takes `feeds` calls at once.

    `limited` tells that a person has set this limit; otherwise agents find it, more or less. At the
    share `storms` of the looks, so many calls were refused that agents have just begun again with
    one call each.
    """

    random: Random
    waiting: float = 0.0
    task_s: float = 10.0
    slots: int = 64
    feeds: float = inf
    limited: bool = False
    storms: float = 0.0
    is_down: bool = False  # the provider
    partitions: int = 100
    _started_s: list[int] = field(default_factory=list)
    _ended: deque[tuple[int, float]] = field(default_factory=deque)
    _seen: deque[Workload] = field(default_factory=deque)

    def run(self, now_s: int, pods: int) -> None:
        """Work until the next check with so many pods."""
        self._started_s = [*self._started_s, *[now_s] * (pods - len(self._started_s))][:pods]
        agents = sum(at_s + POD_START_S <= now_s for at_s in self._started_s)
        can_run = min(agents * self.slots, self.feeds)
        busy = 0 if self.is_down else int(min(can_run, ceil(self.waiting)))
        ended = min(self.waiting, CHECK_EVERY_S * busy / self.task_s)
        self.waiting -= ended
        self._ended.append((now_s, ended))
        _forget(self._ended, now_s - MINUTE_S)
        self._seen.append(self._load(agents, busy))

    def look(self) -> Workload:
        """Return what the exporter knows: what was so some seconds ago."""
        kept = 1 + LAG_S // CHECK_EVERY_S
        while len(self._seen) > kept:
            self._seen.popleft()
        return self._seen[0]

    def _load(self, agents: int, busy: int) -> Workload:
        noisy = self.feeds * self.random.uniform(0.95, 1.05)
        if self.random.random() < self.storms:
            noisy = float(agents)
        is_found = agents * self.slots > self.feeds and not self.limited and not self.is_down
        limits = QuotaLimits(in_flight=int(self.feeds)) if self.limited else NO_LIMITS
        has_work = bool(busy or (self.is_down and agents and self.waiting))
        return Workload(
            waiting=ceil(self.waiting),
            unfinished=ceil(self.waiting),
            agents=agents,
            slots=self.slots,
            busy=busy,
            ended_per_s=sum(n for _, n in self._ended) / MINUTE_S,
            partitions=self.partitions,
            routes=int(has_work),
            closed_routes=int(has_work and self.is_down),
            accounts=[ProviderAccount(limits=limits, learned=noisy if is_found else None)],
        )


def follow(
    group: Group,
    scaler: Autoscaler,
    *,
    answer: Callable[[Workload], Scale],
    looks: int,
    began_s: int = 0,
    lost: float = 0.0,
) -> list[Scale | None]:
    """Let the autoscaler follow the group; return the answers. The share `lost` does not come."""
    answers: list[Scale | None] = []
    for now_s in range(began_s, began_s + CHECK_EVERY_S * looks, CHECK_EVERY_S):
        group.run(now_s, scaler.pods)
        is_lost = group.random.random() < lost
        answers.append(None if is_lost else answer(group.look()))
        last = answers[-1]
        scaler.look(now_s, None if last is None else last.desired)
    return answers


def turns(changes: list[tuple[int, int]]) -> int:
    """Return how often the autoscaler changed its direction."""
    return sum((first > 0) != (second > 0) for (_, first), (_, second) in pairwise(changes))


def _forget(times: deque[tuple[int, int]] | deque[tuple[int, float]], before_s: int) -> None:
    while times and times[0][0] < before_s:
        times.popleft()

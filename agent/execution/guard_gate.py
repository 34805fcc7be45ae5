"""The raised guards that an agent knows of, and what it does with the tasks that they stop. Asked at every start of a task.

The ledger decides; this is a copy that is at most some seconds old. A task that runs although its guard is raised does no harm:
its settle holds it back.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable

from agent.judge import Tier
from agent.judge.guard_rule import GUARDED, moved
from agent.outcome import Failure, Moved, Spent
from agent.ports import Clock, Row
from producer.ledger.guards import ANY_ROUTE, Guard
from schemas.runtime import crash

MOVES_PER_S = (
    500.0  # of one agent, so that a topic of a million tasks is not rewritten at full speed
)


class GuardGate:
    """`take_turn` asks the ledger whether a task may go in the look of a guard: (guard's id, task's id)."""

    def __init__(
        self, *, clock: Clock, longest_tier: Tier, take_turn: Callable[[int, int], Awaitable[bool]]
    ) -> None:
        self._clock = clock
        self._longest_tier = longest_tier
        self._take_turn = take_turn
        self.known = False  # before the first look at the ledger nothing may start
        self._raised: dict[tuple[int, str, str], Guard] = {}
        self._members: frozenset[int] = frozenset()
        self._granted: set[int] = set()
        self._asked: Counter[int] = (
            Counter()
        )  # by guard: how many tasks asked for a place since the last refresh
        self._next_s = 0.0

    def replace(self, raised: Iterable[Guard], members: Collection[int] = ()) -> None:
        """Take what the ledger says now; `members` are the tasks of all looks."""
        self.known = True
        self._raised = {(one.batch_id, one.type, one.route): one for one in raised}
        self._members = frozenset(members)
        self._granted &= self._members
        self._asked = Counter()

    def stops(self, row: Row, route: str) -> Guard | None:
        """Return the guard that stops a task, None when it may run; a task that goes in a look may run, and may come back."""
        if not self._raised or row.task_id in self._granted:
            return None
        return self._raised.get((row.batch_id, row.type, route)) or self._raised.get(
            (row.batch_id, row.type, ANY_ROUTE)
        )

    async def moved(self, guard: Guard, task_id: int) -> Moved | None:
        """Return where a stopped task goes, when it is its turn; None when it goes in the guard's look and is to run."""
        if self._may_ask(guard, task_id):
            self._asked[guard.id] += 1
            if await self._take_turn(guard.id, task_id):
                crash.reach("guard.turn_taken")
                self._granted.add(task_id)
                return None
            self._asked[guard.id] += guard.look_size  # other agents have filled the look
        await self._clock.sleep(self._wait_s())
        return moved(Failure(GUARDED, guard.reason), Spent(), self._longest_tier, task_id)

    def _may_ask(self, guard: Guard, task_id: int) -> bool:
        """Return whether the ledger is asked for a place: while the look has free ones, and for a task that has one."""
        return guard.looking and (
            task_id in self._members or self._asked[guard.id] < guard.look_left
        )

    def _wait_s(self) -> float:
        """Return how long the next move has to wait, and count it. It keeps its slot meanwhile, so nothing is claimed in vain."""
        now_s = self._clock.now_s()
        self._next_s = max(now_s, self._next_s) + 1 / MOVES_PER_S
        return self._next_s - now_s

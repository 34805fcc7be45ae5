"""The gate before each start of a task: holds the task back if a guard is raised for it.

The ledger decides about guards. The gate has a copy that is at most some seconds old. A task that
runs although its guard is raised does no harm, because its settle holds it back.

How a guard moves from state to state: `docs/explanation/architecture.md`, "Guards".
"""

from collections import Counter
from collections.abc import Collection, Iterable

from docllm.agent.judge import Tier
from docllm.agent.judge.tiers import move_for_guard
from docllm.agent.ports import Clock, Ledger, Row
from docllm.agent.ports.outcome import Failure, Moved, Spent
from docllm.schemas.runtime import crash
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.guard import ANY_ROUTE, Guard
from docllm.schemas.task.waits import guard_key

# Per agent. It keeps an agent from rewriting a topic of a million tasks at full speed.
MOVES_PER_S = 500.0


class GuardGate:
    """The raised guards that one agent knows, and the decision about each task."""

    def __init__(self, *, clock: Clock, longest_tier: Tier, ledger: Ledger) -> None:
        self._clock = clock
        self._longest_tier = longest_tier
        self._ledger = ledger
        self.has_read_guards = False  # nothing may start before the guards have been read once
        self._raised: dict[tuple[int, str, str], Guard] = {}
        self._look_tasks: frozenset[int] = frozenset()
        self._joined: set[int] = set()
        # By guard: how many tasks asked for a place since the last `replace`.
        self._asked: Counter[int] = Counter()
        self._next_at_s = 0.0

    def replace(self, raised: Iterable[Guard], look_tasks: Collection[int] = ()) -> None:
        """Replace the copy by what the ledger says now; `look_tasks` are the tasks of all looks."""
        self.has_read_guards = True
        self._raised = {(guard.batch_id, guard.type, guard.route): guard for guard in raised}
        self._look_tasks = frozenset(look_tasks)
        self._joined &= self._look_tasks
        self._asked = Counter()

    @property
    def any_raised(self) -> bool:
        """Whether a guard is raised."""
        return bool(self._raised)

    def guard_of(self, row: Row, route: str) -> Guard | None:
        """Return the guard that holds a task back; None if it may run.

        A task that has joined a look may run again, for example after a snooze.
        """
        if not self._raised or row.task_id in self._joined:
            return None
        return self._raised.get((row.batch_id, row.type, route)) or self._raised.get(
            (row.batch_id, row.type, ANY_ROUTE)
        )

    def keeps_off(self, row: Row, fallback: str) -> bool:
        """Return whether a guard keeps a task off a fallback; a task of a look may try it."""
        return row.task_id not in self._look_tasks and self.guard_of(row, fallback) is not None

    async def join_look_or_move(self, guard: Guard, task_id: int) -> Moved | None:
        """Let a task join the look (None: it may run), or return its move to the ledger.

        Waits until it is the task's turn, so that at most MOVES_PER_S tasks move in a second.
        """
        if self._may_ask(guard, task_id):
            self._asked[guard.id] += 1
            if await self._ledger.join_look(guard.id, task_id):
                crash.reach("guard.turn_taken")
                self._joined.add(task_id)
                return None
            self._asked[guard.id] += guard.look_size  # other agents have filled the look
        await self.wait_to_move()
        # Not `guard.reason`: it quotes the error of another task, perhaps of another tenant.
        failure = Failure(ErrorClass.GUARD, f"the guard of {guard.title} is raised: {guard.cause}")
        key = guard_key(guard.batch_id, guard.type)
        return move_for_guard(failure, Spent(), task_id, key, self._longest_tier)

    async def wait_to_move(self) -> None:
        """Wait until one more task may be moved: at most MOVES_PER_S do in a second."""
        await self._clock.sleep(self._wait_s())

    def _may_ask(self, guard: Guard, task_id: int) -> bool:
        """Return whether to ask the ledger for a place in the look.

        It is asked while the look seems to have free places, and for a task that has a place.
        """
        return guard.looking and (
            task_id in self._look_tasks or self._asked[guard.id] < guard.look_left
        )

    def _wait_s(self) -> float:
        """Count the next move and return how long it must wait.

        The task keeps its slot during the wait, so that no further task is claimed only to be
        moved.
        """
        now_s = self._clock.now_s()
        self._next_at_s = max(now_s, self._next_at_s) + 1 / MOVES_PER_S
        return self._next_at_s - now_s

"""A guard as a value, and why it was raised.

While a guard is raised, the tasks of its key wait instead of being given up. A guard's key is
batch, type and route.

How a guard moves from state to state: `docs/explanation/architecture.md`, "Guards".
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

ANY_ROUTE = ""  # no route has this name; a task may name a route by any other text


class GuardCause(StrEnum):
    """Why a guard was raised. The cause decides how the guard is tried.

    Unless noted otherwise, looks begin `guard.probe_s` apart.
    """

    # Nothing succeeds on the route. docllm's own cheap prompt shows whether the route works.
    NO_SUCCESS = "no_success"
    # The tasks fail as a whole on a route that works. Looks follow each other fast.
    EXHAUSTED = "exhausted"
    # The tasks' own code or documents fail. No prompt can show this, only looks.
    HANDLER = "handler"
    # The first tasks were all refused for one reason.
    BAD_REQUEST = "bad_request"
    # Agents are lost over the tasks.
    WORKER_LOST = "worker_lost"


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard; ages are by the database's clock.

    - `open_age_s`: since when it is open; None while the guard is raised.
    - `probe_due_in_s` is the time until `probe_at`. Without a look, this is when the next one is
      due. During a look, it is negative: the time since the look began or since tasks were last
      called up for it.
    - `look_size` is the number of tasks in the present look, or in the next one if there is none.
    - `look_left` is the number of free places in the present look, -1 if there is none.
    - `look_at` is when the present look began. Without a look, it is when the last look ended or
      the guard was raised.
    - `vouched` says that the route worked when the look began.
    """

    id: int
    batch_id: int
    batch: str
    type: str
    route: str
    cause: str
    reason: str
    raised_at: datetime
    probe_due_in_s: float
    open_age_s: float | None
    look_at: datetime
    look_age_s: float = 0.0
    look_size: int = 1
    look_left: int = -1
    vouched: bool = False

    @property
    def raised(self) -> bool:
        """Whether the guard stops tasks."""
        return self.open_age_s is None

    @property
    def looking(self) -> bool:
        """Whether some of its tasks are tried now."""
        return self.look_left >= 0

    @property
    def title(self) -> str:
        """The guard's batch, type and route, for a person."""
        route = "any route" if self.route == ANY_ROUTE else f"route {self.route}"
        return f"batch {self.batch}, type {self.type}, {route}"

    @property
    def next_look_in_s(self) -> float:
        """The seconds until its next look, 0 when that is due or under way."""
        return 0.0 if self.looking else round(max(0.0, self.probe_due_in_s), 1)

    @property
    def next_step_text(self) -> str:
        """The guard's next step, for a person."""
        when = f"in {self.next_look_in_s:.0f} s" if self.next_look_in_s else "now"
        if self.cause == GuardCause.NO_SUCCESS:
            return f"a prompt is sent to the route {when}"
        tasks = "1 task" if self.look_size == 1 else f"up to {self.look_size} tasks"
        return f"{tasks} of it tried now" if self.looking else f"next look {when}, with {tasks}"

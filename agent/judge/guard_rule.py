"""The rules of guards: when failures are the key's fault rather than each task's own. Pure.

A key is (batch, type, route). A task whose attempts are used up dies only while its route works and
most tasks of its key succeed. A task that is permanently refused dies, unless no task of its key
has succeeded yet and a dozen of them were refused for the same reason. A task that may not die
waits, and the guard of its key is raised.

A guard's states, and the other files of guards: `docs/explanation/architecture.md`, "Guards".
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from docllm.schemas.task.guard import GuardCause

# The two parts of the error text of a task that was moved because its route is closed; the route's
# name stands between them.
WINDOW_S = 600.0
DEATHS = 10  # this many dead tasks raise a guard, if they are more than DEAD_SHARE of all
DEAD_SHARE = 0.5
RUN = 10  # this many dead tasks in a row with one error also raise a guard
BAD_REQUESTS = 12
# A key ends well if at least GOOD_ENDED of its tasks have ended, the share of dead ones among these
# is below GOOD_DEAD, and the tasks left are at most the share GOOD_LEFT.
GOOD_ENDED = 1000
GOOD_DEAD = 0.05
GOOD_LEFT = 0.05
MAX_LOOK = 512  # tasks of one look, so that reading a look stays cheap
# If tasks are known to be at fault, or the last look showed nothing, looks follow each other this
# many times faster than every `guard.probe_s`.
FASTER = 10


@dataclass(frozen=True, slots=True)
class EndCount:
    """A number of tasks (`count`) that ended alike.

    `exhausted` is the fingerprint of the error that used up their attempts; None if none did.
    """

    exhausted: bytes | None
    count: int = 1


@dataclass(slots=True)
class KeyHistory:
    """What is known of one key, to decide whether its tasks may die.

    - `raised`: its guard is raised.
    - `route_works`: something succeeds on its route.
    - `recent_ends`: how its tasks ended lately, the newest first.
    - `raised_by_bad_requests`: its guard is raised because of bad requests.
    - `has_no_success`: no task of the key has succeeded. Then `ended` counts its ended tasks, and
      `bad_requests` those that the provider refused, by fingerprint.
    - `ends_well`: returns whether nearly all tasks of the key have ended, and few of them died.
    - `silence`: since when nothing has succeeded on the route, as text for a person.
    - `cause`, `why`: set when the guard is raised here.
    """

    raised: bool
    route_works: bool
    recent_ends: Iterable[EndCount] = ()
    raised_by_bad_requests: bool = False
    has_no_success: bool = False
    ended: int = 0
    bad_requests: Counter[bytes] = field(default_factory=Counter)
    ends_well: Callable[[], bool] = lambda: False
    silence: str = "nothing has succeeded on this route"
    cause: GuardCause | None = None
    why: str = ""
    _deaths: int = field(init=False, default=0)
    _total: int = field(init=False, default=0)
    _run: int = field(init=False, default=0)
    _last_error: bytes | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        for ended in reversed(list(self.recent_ends)):
            self._add(ended)

    def let_die(self, error: bytes, *, of_call: bool = True) -> bool:
        """Let a task die whose attempts this error used up, and count it; False if it may not.

        `of_call` says that a call to the route failed with the error.
        """
        cause = GuardCause.EXHAUSTED if of_call else GuardCause.HANDLER
        if not self.raised and not self.route_works:
            self._raise(GuardCause.NO_SUCCESS, self.silence)
        if self.raised:
            return False
        self._count(EndCount(error))
        if self._run >= RUN and not self.ends_well():
            self._raise(cause, f"the last {self._run} tasks were given up on for the same error")
        elif self._most_died() and not self.ends_well():
            self._raise(cause, f"{self._deaths} of the last {self._total} tasks were given up on")
        return True

    def let_die_of_bad_request(self, error: bytes) -> bool:
        """Let a task die that the provider refused, and count it; False if it may not."""
        if self.raised and self.raised_by_bad_requests:
            return False
        self._count(EndCount(None))
        self.bad_requests[error] += 1
        alike = self.bad_requests[error]
        is_most = alike >= BAD_REQUESTS and alike > DEAD_SHARE * self.ended
        if not self.raised and self.has_no_success and is_most:
            self.raised_by_bad_requests = True
            counted = f"all {alike}" if alike == self.ended else f"{alike} of {self.ended}"
            self._raise(
                GuardCause.BAD_REQUEST,
                f"{counted} tasks that ended were refused for the same reason, "
                "and none has succeeded",
            )
        return True

    def count_success(self) -> None:
        """Count a success: from now on, no refusal is the key's fault."""
        self.has_no_success = False
        self._count(EndCount(None))

    def count_own_death(self) -> None:
        """Count a task that died of its own input."""
        self._count(EndCount(None))

    def _count(self, ended: EndCount) -> None:
        self.ended += ended.count
        self._add(ended)

    def _add(self, ended: EndCount) -> None:
        self._total += ended.count
        self._deaths += ended.count if ended.exhausted else 0
        if not ended.exhausted or ended.exhausted != self._last_error:
            self._run = 0
        if ended.exhausted:
            self._run += ended.count
        self._last_error = ended.exhausted

    def _most_died(self) -> bool:
        return self._deaths >= DEATHS and self._deaths > DEAD_SHARE * self._total

    def _raise(self, cause: GuardCause, why: str) -> None:
        self.raised, self.cause, self.why = True, cause, why


@dataclass(frozen=True, slots=True)
class Look:
    """How many tasks of a look are in which state.

    A `failed` task has died, or an attempt at it has failed. A `cancelled` task says nothing; one
    that succeeded on another route counts so.
    """

    succeeded: int = 0
    failed: int = 0
    running: int = 0
    waiting: int = 0
    cancelled: int = 0

    def over(self, *, places: int, late: bool) -> bool:
        """Return whether nothing more can be learned from the look.

        `places` is how many more tasks may join it. `late` says that it has lasted for long.
        """
        return not self.running and (late or not (places or self.waiting))


def next_size(look: Look, size: int, *, vouched: bool) -> int:
    """Return how many tasks may join the next look.

    The number doubles if tasks failed although their route worked when the look began (`vouched`).
    """
    return min(2 * size, MAX_LOOK) if vouched and look.failed else size


def next_in_s(look: Look, cause: str, *, vouched: bool, age_s: float, probe_s: float) -> float:
    """Return the seconds until the next look may begin; the present look began `age_s` ago.

    `cause` is the stored one: an agent of a newer version may know further causes.
    """
    no_news = look.cancelled and not look.failed
    fast = no_news or (cause == GuardCause.EXHAUSTED and vouched and look.failed)
    return max(0.0, (probe_s / FASTER if fast else probe_s) - age_s)


def closed_text(route: str) -> str:
    """Return the error text of a move that was made because this route was closed."""
    return f"route {route} is closed"

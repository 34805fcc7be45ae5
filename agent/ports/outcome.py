"""The outcomes of an attempt, as values.

The judge makes an outcome of an answer or an error. Handlers and checks before and after the calls
may make one too. `docllm.agent.ledger.settlements.settling` has the last word, in the transaction
that writes it. A lost agent's attempts end without an outcome, in
`docllm.agent.ledger.recovery.reaping`.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime

from docllm.schemas.task.failures import Disposition, ErrorClass, may_have_finished
from docllm.schemas.task.joins import JoinRole
from docllm.schemas.task.provider_error import ProviderError
from docllm.schemas.task.record.lanes import Lane
from docllm.schemas.task.result.notes import Notes
from docllm.schemas.task.waits import WaitReason

AMOUNTS = ("tokens_in", "tokens_out", "tokens_cached", "cost_micro", "unsure_micro", "unpriced")


@dataclass(slots=True, unsafe_hash=True)
class Spent:
    """The cost of an attempt; it is never changed.

    `call_id` is the id of the last call, the provider's or ours; empty if there was no call.
    `cost_micro` is in millionths of the currency's unit. `duration_ms` covers the whole attempt.
    `tokens_cached` is a part of `tokens_in`. `unsure_micro` is the part of `cost_micro` that is
    estimated, because the call's usage is not known. `unpriced` counts the calls whose cost is
    unknown, because their model has no price. `calls` is how many calls were made.
    `on_left_routes` holds the part of all this that arose on routes that the attempt has left.
    """

    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int = 0
    call_id: str = ""
    duration_ms: int = 0
    tokens_cached: int = 0
    unsure_micro: int = 0
    calls: int = field(default=0, compare=False)
    unpriced: int = 0
    on_left_routes: "tuple[RouteSpent, ...]" = ()

    @property
    def has_called(self) -> bool:
        """Whether a call was made.

        The provider may bill a call even if it reported no usage.
        """
        return bool(self.call_id)

    def plus(self, earlier: "Spent") -> "Spent":
        """Return these costs with those of the attempt's earlier calls."""
        return replace(
            self,
            tokens_in=earlier.tokens_in + self.tokens_in,
            tokens_out=earlier.tokens_out + self.tokens_out,
            tokens_cached=earlier.tokens_cached + self.tokens_cached,
            cost_micro=earlier.cost_micro + self.cost_micro,
            unsure_micro=earlier.unsure_micro + self.unsure_micro,
            unpriced=earlier.unpriced + self.unpriced,
            calls=earlier.calls + self.calls,
            on_left_routes=earlier.on_left_routes + self.on_left_routes,
        )

    @property
    def on_this_route(self) -> "Spent":
        """The costs on the attempt's present route only."""
        if not self.on_left_routes:
            return self
        parts = [part.spent for part in self.on_left_routes]
        names = (*AMOUNTS, "calls")
        sums = {name: sum(getattr(part, name) for part in parts) for name in names}
        left = {name: getattr(self, name) - amount for name, amount in sums.items()}
        return replace(self, on_left_routes=(), **left)

    def leaving_route(self, route: str, error_class: ErrorClass) -> "Spent":
        """Return these costs once the attempt leaves a route, for a failure of this class."""
        part = RouteSpent(route, error_class, self.on_this_route)
        has_called = part.spent.calls or any(getattr(part.spent, name) for name in AMOUNTS)
        return replace(self, on_left_routes=(*self.on_left_routes, part)) if has_called else self

    def plus_on_left(self, late: "Spent", route: str, error_class: ErrorClass) -> "Spent":
        """Return these costs with those of a call that ended after the attempt had left its route.

        `error_class` is why the attempt left that route.
        """
        parts = {part.route: part for part in self.on_left_routes}
        earlier = parts[route].spent if route in parts else Spent()
        parts[route] = RouteSpent(route, error_class, late.plus(earlier))
        return replace(late.plus(self), on_left_routes=tuple(parts.values()))


NOTHING_SPENT = Spent()


@dataclass(frozen=True, slots=True)
class RouteSpent:
    """What an attempt has spent on a route, which it left for a failure of this class."""

    route: str
    error_class: ErrorClass
    spent: Spent


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason of a failed attempt: a class of the judge's table, and a text for a person.

    `traceback` shows where the code of a handler failed, if that was the reason. `provider_error`
    is what the provider's error names, if it was one. `is_of_answer`: the answer is complete but
    does not match the schema, so the model may be asked to correct it. `keeps_losses`: the task's
    recorded losses stay, because it may still be the task that kills its agents. `may_be_of_task`:
    the provider refused the call as for a wrong key, but so may a firewall refuse one document.
    `reply` is the beginning of what the model answered, if its answer is what cannot be used.
    """

    error_class: ErrorClass
    text: str
    traceback: str = field(default="", compare=False, repr=False)
    provider_error: ProviderError = field(default=ProviderError(), compare=False, repr=False)
    is_of_answer: bool = field(default=False, compare=False, repr=False)
    keeps_losses: bool = field(default=False, compare=False, repr=False)
    may_be_of_task: bool = field(default=False, compare=False, repr=False)
    reply: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A task that another task orders.

    `value` is its line; all fields but `join_role` are parsed from that line.
    """

    key: str
    value: bytes
    type: str
    tenant: str
    max_attempts: int
    deadline: datetime | None
    lane: Lane
    not_before: datetime | None = None
    join_role: JoinRole = JoinRole.NONE


@dataclass(slots=True, unsafe_hash=True)
class Succeeded:
    """The attempt gave an answer; it is never changed. `body` is already packed as `codec` says.

    `follow_ups` are made in the transaction that stores the answer. If `output_uri` is not empty,
    the answer must be written below it first, and its pointer settled; the settle of a pointer with
    an `output_uri` orders the copy to that object. `oddities` are what to note
    of an answer that is not as OpenAI would send it; `notes` are stored beside the result.
    """

    body: bytes
    codec: int
    spent: Spent
    follow_ups: tuple[FollowUp, ...] = ()
    output_uri: str = ""
    oddities: tuple[str, ...] = ()
    notes: Notes = ()


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `delay_s` at the earliest, and not before `at` (UTC); the attempt counts.

    It waits in tier `tier`, or in the ledger if that is empty.
    """

    failure: Failure
    spent: Spent
    tier: str
    delay_s: float
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Snooze:
    """Come back after `delay_s`; the attempt does not count.

    `answer` was paid for but could not be written yet; the task's next claim writes it without a
    call. The answer's costs are not included in `spent`.
    """

    failure: Failure
    spent: Spent
    delay_s: float
    answer: Succeeded | None = None


@dataclass(frozen=True, slots=True)
class HandlerState:
    """What a handler keeps until it comes back, as JSON, and how often it has come back."""

    json: bytes
    come_backs: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Wait in the ledger, because such tasks do not run now; the attempt does not count.

    The task returns when `reason` has ended for `key`, a route for example, and at the latest after
    `delay_s` or at `at` (UTC), whichever is later. `state` is what its handler keeps.
    """

    failure: Failure
    spent: Spent
    delay_s: float
    reason: WaitReason
    key: str = ""
    at: datetime | None = None
    state: HandlerState | None = None


@dataclass(frozen=True, slots=True)
class Dead:
    """Give the task up."""

    failure: Failure
    spent: Spent
    disposition: Disposition = Disposition.PERMANENT


def unseen(why: str, spent: Spent) -> Dead:
    """Return the outcome of an attempt that was cut off, for `why`, and must not run twice."""
    failure = Failure(ErrorClass.WORKER_LOST, may_have_finished(why))
    return Dead(failure, spent, Disposition.WORKER_LOST)


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The task's batch was cancelled. `spent` is what the attempt had paid by then."""

    spent: Spent = NOTHING_SPENT


@dataclass(frozen=True, slots=True)
class Released:
    """The claim is given back.

    The attempt may not begin, or the agent drains or lost its lease. `spent` is what the attempt
    had paid by then. `cut_off`: a handler's own function had begun.
    """

    spent: Spent = NOTHING_SPENT
    cut_off: bool = False


Outcome = Succeeded | Retry | Snooze | Moved | Dead | Cancelled | Released

"""The causes of repeated calls.

Each repeated call is matched to the end of the attempt before it, and that end to a logged fault. A
call whose earlier attempt was ended by no known cause is one call too many.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from docllm.schemas.task.owner import agent_of
from docllm.schemas.task.states import Status
from tests.faults.fault import Cost
from tests.faults.faultlog import Event
from tests.faults.lives import Life
from tests.faults.received_calls import ReceivedCall
from tests.faults.run_evidence import RunEvidence
from tests.faults.site import CALL_S, LIMITS
from tests.invariants.evidence import Attempt
from tests.invariants.happened import Move

OK = 200
# A fault has effects until it is noticed: leases are lost 12 s after the last heartbeat, and judged
# each second.
NOTICED_S = 25.0
SETTLE_S = 5.0
# A way that was mended hands on what it held: the LLM receives the call when the fault is over.
LATE_S = 2.0
AWAKE_S = 1.0  # until an agent that was frozen has looked at its clock
FREEZE, TIME_OUT = "agent-freeze", "AMBIGUOUS"
LLM_FAULT = "llm: {}"
AGENT_LOST, REPLY_LOST, LEFT = "agent lost: {}", "answer lost: {}", "agent told to leave: {}"
TOO_LATE = "time limit passed: {}"
STOOD_STILL = "agent stood still before its call: {}"
PERSON = "replayed or cancelled by a person"
UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repeated call.

    `cause` names the fault's kind. `paid` means that the first call had been answered.
    """

    name: str
    at_s: float
    cause: str
    paid: bool

    def __str__(self) -> str:
        return (
            f"{self.name} at {self.at_s:.3f}: "
            f"{self.cause}{', though it was answered' if self.paid else ''}"
        )


def repeats(evidence: RunEvidence) -> list[Repeat]:
    """Return every repeated call with its cause."""
    return list(_Causes(evidence).all())


def by_cause(repeats: Sequence[Repeat]) -> dict[str, int]:
    """Return the number of repeated calls for each cause, the most frequent first."""
    return dict(Counter(repeat.cause for repeat in repeats).most_common())


class _Causes:
    def __init__(self, evidence: RunEvidence) -> None:
        self._evidence = evidence
        self._agents: Mapping[int, Life] = evidence.agents
        self._moves: dict[int, list[Move]] = defaultdict(list)
        for move in evidence.run.moves or ():
            self._moves[move.task_id].append(move)
        self._attempts: dict[tuple[str, int | None], Attempt] = {
            (attempt.task, attempt.owner): attempt for attempt in evidence.run.attempts
        }

    def all(self) -> Iterator[Repeat]:
        calls: dict[str, list[ReceivedCall]] = defaultdict(list)
        for received in self._evidence.received:
            calls[received.call.name].append(received)
        for name, received_calls in calls.items():
            for first, second in pairwise(received_calls):
                yield Repeat(
                    name,
                    second.call.start_s,
                    self._cause(first, second),
                    first.call.status == OK and first.fault is None,
                )

    def _cause(self, first: ReceivedCall, second: ReceivedCall) -> str:
        owner = first.call.claim.owner if first.call.claim is not None else 0
        end = self._end(first.call.task_id, owner, first.call.start_s, second.call.start_s)
        if first.fault is not None and (fault := self._dialed(first)) is not None:
            return LLM_FAULT.format(fault)
        if end is not None and end.losses > 0:
            return self._named(AGENT_LOST, self._lost(owner, first.call.start_s, end.at_s))
        if (unheard := self._not_received(first, second, owner)) is not None:
            return unheard
        if end is not None and end.after is Status.PENDING:
            return self._named(
                LEFT,
                self._faults(first.seat, first.call.start_s, end.at_s, {Cost.REPLY, Cost.LEASE}),
            )
        if end is not None and end.after is Status.CANCELLED:
            return PERSON
        return self._named(STOOD_STILL, self._woken(second))

    def _woken(self, second: ReceivedCall) -> list[str]:
        """Return the freezes that ended just before a call began.

        The agent may have looked at its lease before the freeze. Meanwhile another agent got the
        task.
        """
        return [
            str(fault["kind"])
            for fault in self._evidence.faults
            if str(fault["kind"]).startswith(FREEZE)
            and second.seat in fault["seats"]
            and 0 <= second.call.start_s - fault["end_s"] <= AWAKE_S
        ]

    def _not_received(self, first: ReceivedCall, second: ReceivedCall, owner: int) -> str | None:
        """Return why an answer did not arrive, or not in time."""
        attempt = self._attempts.get((first.call.name, owner))
        if first.call.status != OK or attempt is not None:
            until_s = first.call.end_s or second.call.start_s
            lost = self._faults(
                first.seat,
                first.call.start_s - LATE_S,
                until_s + SETTLE_S,
                {Cost.REPLY, Cost.LEASE},
            )
            if lost:
                return self._named(REPLY_LOST, lost)
        if attempt is not None and attempt.error_class == TIME_OUT and self._frozen_too_long(first):
            return TOO_LATE.format(FREEZE)
        return None

    def _frozen_too_long(self, first: ReceivedCall) -> bool:
        """Return whether the agent was frozen until the call's time limit had passed."""
        over_s = first.call.start_s + CALL_S
        return any(
            fault["start_s"]
            <= min(first.call.end_s or over_s, over_s)
            <= over_s
            <= fault["end_s"] + AWAKE_S
            for fault in self._evidence.faults
            if fault["kind"] == FREEZE and first.seat in fault["seats"]
        )

    @staticmethod
    def _named(form: str, kinds: Sequence[str]) -> str:
        return form.format(kinds[0]) if kinds else UNEXPLAINED

    def _end(self, task_id: int, owner: int, from_s: float, to_s: float) -> Move | None:
        """Return how the claim of a call ended before the next call."""
        ends = (
            move
            for move in self._moves[task_id]
            if from_s <= move.at_s <= to_s and move.old_owner == owner
        )
        return next(ends, None)

    def _dialed(self, first: ReceivedCall) -> str | None:
        """Return the fault that the LLM was set to at that time; its limits are always set."""
        if first.fault in LIMITS:
            return "limits"
        for fault in self._evidence.faults:
            dialed = str(fault["evidence"].get("dialed", ""))
            if (
                dialed.partition("=")[0] == first.fault
                and fault["start_s"] <= first.call.start_s <= fault["end_s"]
            ):
                return str(fault["kind"])
        return None

    def _lost(self, owner: int, from_s: float, to_s: float) -> list[str]:
        """Return the faults that may have cost an agent its lease."""
        life = self._agents.get(agent_of(owner))
        return self._faults(life.seat if life else "", from_s - NOTICED_S, to_s, {Cost.LEASE})

    def _faults(self, seat: str, from_s: float, to_s: float, costs: set[Cost]) -> list[str]:
        """Return the kinds of the faults that met a seat in this time, latest beginnings first."""
        struck: list[Event] = [
            fault
            for fault in self._evidence.faults
            if seat in fault["seats"] and Cost(fault["cost"]) in costs
        ]
        then = [event for event in struck if event["start_s"] <= to_s and event["end_s"] >= from_s]
        return [str(event["kind"]) for event in sorted(then, key=lambda event: -event["start_s"])]

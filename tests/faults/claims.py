"""The claim under which a call was made."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from docllm.schemas.task.owner import agent_of
from docllm.schemas.task.states import Status
from tests.faults.lives import Life
from tests.faults.received_calls import ReceivedCall
from tests.invariants.calls import READ_LATE_S
from tests.invariants.evidence import Call, Task
from tests.invariants.happened import Claim, Move

ROUTE = "default"


class Claims:
    """Which agent had which task when.

    `freezes` are the times when the LLM was frozen: it receives only afterwards what was sent
    meanwhile.
    """

    def __init__(
        self,
        moves: Sequence[Move],
        agents: Mapping[int, Life],
        freezes: Sequence[tuple[float, float]],
    ) -> None:
        self._agents = agents
        self._freezes = freezes
        self._moves: dict[int, list[Move]] = defaultdict(list)
        for move in moves:
            self._moves[move.task_id].append(move)

    def known(self, received: ReceivedCall, task: Task | None) -> Call:
        """Return a call with its claim: the last one of its seat, or else the last one."""
        if task is None:
            return received.call
        before = [move for move in self._moves[task.id] if move.at_s <= received.call.start_s]
        claims = [move for move in before if move.claims]
        claims = [move for move in claims if self._seat(move.owner) == received.seat] or claims
        if not claims:
            return replace(received.call, task_id=task.id)
        owner, sent_s = claims[-1].owner, max(claims[-1].at_s, self._sent_s(received.call.start_s))
        last = next(move for move in reversed(before) if move.at_s <= sent_s)
        life = self._agents.get(agent_of(owner))
        status = (
            last.after
            if last.after is not Status.PROCESSING or last.owner == owner
            else Status.PENDING
        )
        return replace(
            received.call,
            task_id=task.id,
            route=ROUTE,
            claim=Claim(life.program if life else "", status, owner),
        )

    def _sent_s(self, heard_s: float) -> float:
        """Return the earliest time at which a call received then may have been sent."""
        return min(
            (
                begin_s
                for begin_s, end_s in self._freezes
                if begin_s <= heard_s <= end_s + READ_LATE_S
            ),
            default=heard_s,
        )

    def _seat(self, owner: int) -> str:
        life = self._agents.get(agent_of(owner))
        return life.seat if life else ""

"""The ledger at each moment of a run, from the history of its rows and orders."""

from bisect import bisect_right
from collections import defaultdict
from math import inf

from docllm.schemas.task.owner import agent_of
from tests.invariants.evidence import Evidence
from tests.invariants.happened import Move, Ordered


class History:
    """Answers what the ledger said at an event's `order`."""

    def __init__(self, run: Evidence) -> None:
        self._moves: dict[int, list[Move]] = defaultdict(list)
        self._ordered: dict[tuple[int, int], list[Ordered]] = defaultdict(list)
        for move in run.moves or ():
            self._moves[move.task_id].append(move)
        for item in run.ordered:
            self._ordered[item.task_id, item.fence].append(item)

    def last(self, task_id: int, order: float) -> Move | None:
        """Return the last change of a task's row up to `order`, None if it did not exist yet."""
        moves = self._moves.get(task_id, [])
        position = bisect_right(moves, order, key=_order)
        return moves[position - 1] if position else None

    def last_claim(self, task_id: int, order: float, agents: frozenset[int]) -> Move | None:
        """Return the last claim of a task by one of these incarnations up to `order`."""
        moves = (
            move
            for move in reversed(self._moves.get(task_id, []))
            if move.order <= order and move.claims
        )
        return next((move for move in moves if agent_of(move.owner) in agents), None)

    def claims(self, task_id: int, after: float, until: float) -> list[Move]:
        """Return the claims of a task after one `order`, up to another."""
        moves = self._moves.get(task_id, ())
        return [move for move in moves if move.claims and after < move.order <= until]

    def ended(self, task_id: int, owner: int, after: float = -inf) -> Move | None:
        """Return the change of a task's row that ended this claim after an `order`."""
        return next(
            (
                move
                for move in self._moves.get(task_id, ())
                if move.old_owner == owner != move.owner and move.order > after
            ),
            None,
        )

    def ordered(self, task_id: int, fence: int, order: float) -> bool:
        """Return whether a publish order of this record was in the outbox."""
        return any(
            publication.placed <= order and (publication.gone is None or publication.gone > order)
            for publication in self._ordered.get((task_id, fence), ())
        )


def _order(move: Move) -> float:
    return move.order

"""The text of a move, by which tasks of a closed route are found again."""

from docllm.agent.execution.slots import Slots
from docllm.agent.judge.guard_rule import closed_text
from docllm.agent.ports.outcome import Moved
from tests.support.routes import GOOD, ROUTE, routes
from tests.support.slots import SlotsHarness, claimed, ending


def test_slots_move_tasks_with_the_text_by_which_they_are_found() -> None:
    """The text names the route."""
    harness = SlotsHarness(routes(slots=3), ending(GOOD))
    slots: Slots = harness.slots()
    slots.move(claimed(1, harness.clock.now_s()))

    (outcome,) = harness.settler.outcomes
    assert isinstance(outcome, Moved)
    assert outcome.failure.text == closed_text(ROUTE)

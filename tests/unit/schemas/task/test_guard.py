"""A guard as a person sees it."""

from dataclasses import replace

import pytest

from docllm.schemas.task.guard import ANY_ROUTE, Guard, GuardCause
from tests.support.slots import RAISED


@pytest.mark.parametrize(
    ("guard", "ahead"),
    [
        (RAISED, "next look in 60 s, with 1 task"),
        (replace(RAISED, probe_due_in_s=-3.0, look_size=4), "next look now, with up to 4 tasks"),
        (replace(RAISED, look_left=0, look_size=4), "up to 4 tasks of it tried now"),
        (
            replace(RAISED, cause=GuardCause.NO_SUCCESS.value),
            "a prompt is sent to the route in 60 s",
        ),
    ],
)
def test_a_guard_says_what_happens_next(guard: Guard, ahead: str) -> None:
    """A look that is overdue is due now."""
    assert guard.next_step_text == ahead


def test_a_guard_is_named_by_its_key() -> None:
    """Agents that die over tasks raise a guard on any route."""
    assert RAISED.title == "batch b, type document, route default"
    assert replace(RAISED, route=ANY_ROUTE).title == "batch b, type document, any route"


def test_a_guard_is_raised_until_it_is_opened() -> None:
    """The guard looks only while places of a look are counted."""
    assert RAISED.raised
    assert not RAISED.looking
    assert replace(RAISED, look_left=0).looking
    assert not replace(RAISED, open_age_s=1.0).raised

"""A planted bug whose place in the product has moved says so instead of planting nothing."""

from types import ModuleType

import pytest

from agent.ledger.guards import decisions
from agent.ledger.recovery import reaping
from agent.ledger.settlements import settling
from tests.simulation.bugs import BUGS
from tests.simulation.bugs.bug import patched, replaced


class _Base:
    def step(self) -> None:
        """Do nothing."""


class _Heir(_Base):
    pass


def test_every_bug_can_be_planted_and_leaves_nothing_behind() -> None:
    """Every bug replaces names that their owners define, and gives them back."""
    before = {name: vars(module).copy() for name, module in _OWNERS.items()}

    for bug in BUGS.values():
        with bug.plant():
            pass

    assert {name: vars(module) for name, module in _OWNERS.items()} == before


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        pytest.param(reaping, "no_such_name", id="a name that is gone"),
        pytest.param(settling, "hold_back", id="a function that is only imported"),
        pytest.param(reaping, "SUSPECT_LOSSES", id="a number that is only imported"),
        pytest.param(_Heir, "step", id="a method that is only inherited"),
    ],
)
def test_a_name_that_has_moved_is_not_replaced(owner: object, name: str) -> None:
    """The refusal comes when the bug is defined, and names the owner and the name."""
    with pytest.raises(AssertionError, match=f"does not define {name}"):
        replaced(owner, name, None)
    with pytest.raises(AssertionError, match=f"does not define {name}"):
        patched(owner, name, None)


def test_a_name_of_its_own_is_replaced() -> None:
    """What the owner defines is replaced as long as the bug is planted."""
    own = reaping._requeue

    with replaced(reaping, "_requeue", None)():
        assert reaping._requeue is None

    assert reaping._requeue is own


_OWNERS: dict[str, ModuleType] = {
    module.__name__: module for module in (decisions, reaping, settling)
}

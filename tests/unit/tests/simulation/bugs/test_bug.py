"""A planted bug whose place in the product has moved says so instead of planting nothing."""

import asyncio
from contextlib import suppress
from types import ModuleType

import pytest

from docllm.agent.ledger.guards import decisions
from docllm.agent.ledger.recovery import reaping
from docllm.agent.ledger.settlements import settling
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


def out_of_date(program: ModuleType) -> object:
    """Stand for what a planted bug does; the name that it uses is gone."""
    return program.no_such_name


async def out_of_date_async(program: ModuleType) -> object:
    """Do the same as a coroutine."""
    return program.no_such_name


@pytest.mark.parametrize("arguments", [(reaping,), ()])
def test_a_planted_function_that_is_out_of_date_is_named(arguments: tuple[object, ...]) -> None:
    """Its error would break the program, so that promises break, but not by the bug."""
    with (
        pytest.raises(AssertionError, match="what is planted as _requeue is out of date"),
        replaced(reaping, "_requeue", out_of_date)(),
        suppress(AttributeError, TypeError),
    ):
        vars(reaping)["_requeue"](*arguments)


def test_a_planted_coroutine_that_is_out_of_date_is_named() -> None:
    """Coroutines raise when they run, and are watched until then."""

    async def run() -> None:
        with suppress(AttributeError):
            await vars(reaping)["_requeue"](reaping)

    with (
        pytest.raises(AssertionError, match="what is planted as _requeue is out of date"),
        replaced(reaping, "_requeue", out_of_date_async)(),
    ):
        asyncio.run(run())


def test_other_errors_of_a_planted_function_are_its_bug() -> None:
    """A bug may be that something raises, and an error below it may be its consequence."""

    def raises(_program: object) -> None:
        raise ValueError

    with replaced(reaping, "_requeue", raises)(), suppress(ValueError):
        vars(reaping)["_requeue"](reaping)

"""Amounts of money."""

import pytest

from docllm.schemas.text.wording import money, units


@pytest.mark.parametrize(("micro", "amount"), [(0, 0.0), (1, 0.000001), (2_500_000, 2.5)])
def test_a_million_millionths_are_a_unit(micro: int, amount: float) -> None:
    """What a person pays is shown in the unit of the prices."""
    assert units(micro) == amount


@pytest.mark.parametrize(
    ("micro", "shown"),
    [
        (0, "0.0000"),
        (1, "0.000001"),
        (42, "0.000042"),
        (120, "0.00012"),
        (999, "0.000999"),
        (1_000, "0.0010"),
        (1_250_000_000, "1,250.0000"),
    ],
)
def test_a_small_amount_keeps_its_digits(micro: int, shown: str) -> None:
    """What little a task has cost is not shown as nothing."""
    assert money(units(micro)) == shown

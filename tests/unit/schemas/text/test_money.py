"""Amounts of money."""

import pytest

from docllm.schemas.text.wording import units


@pytest.mark.parametrize(("micro", "amount"), [(0, 0.0), (1, 0.000001), (2_500_000, 2.5)])
def test_a_million_millionths_are_a_unit(micro: int, amount: float) -> None:
    """What a person pays is shown in the unit of the prices."""
    assert units(micro) == amount

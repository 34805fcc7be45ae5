"""The collector of cyclic garbage."""

import gc
from collections.abc import Iterator

import pytest

from docllm.schemas.runtime.collector import COLLECT_AT, calm, resting


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = gc.get_threshold()
    yield  # what is exempt stays so: it is what this process has loaded
    gc.set_threshold(*before)


def test_the_collector_runs_rarely_and_skips_what_stays() -> None:
    """Objects of the start are exempt; the others are collected at the threshold."""
    frozen = gc.get_freeze_count()

    calm()

    assert gc.isenabled()
    assert gc.get_threshold() == COLLECT_AT
    assert gc.get_freeze_count() > frozen


def test_the_collector_rests_during_imports() -> None:
    """It does not run while code is imported, and exempts what was made."""
    frozen = gc.get_freeze_count()

    with resting():
        assert not gc.isenabled()
        made = [[number] for number in range(1000)]

    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen + len(made)

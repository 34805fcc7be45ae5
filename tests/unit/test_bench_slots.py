"""What `bench slots` makes of the starts and ends of calls."""

from pathlib import Path

import pytest

from bench.slots import moments, used_percent


def test_the_fill_and_the_last_calls_do_not_count() -> None:
    """Two slots are full from 1 s on; one is empty for half a second before the last start."""
    changes = [(0.0, 1), (1.0, 1), (2.0, -1), (2.5, 1), (3.0, -1), (3.0, 1), (9.0, -1), (9.0, -1)]

    assert used_percent(changes, 2) == pytest.approx(100 * 3.5 / 4)


def test_slots_that_were_never_full_count_from_the_first_start() -> None:
    """One of two slots is used: half."""
    assert used_percent([(0.0, 1), (1.0, -1), (1.0, 1), (2.0, -1)], 2) == pytest.approx(50)


def test_an_idle_slot_costs_its_share() -> None:
    """Calls one after the other in each slot use all of it."""
    whole = [(0.0, 1), (0.0, 1), (1.0, -1), (1.0, -1), (1.0, 1), (1.0, 1), (2.0, -1), (2.0, -1)]

    assert used_percent(whole, 2) == pytest.approx(100)


def test_the_log_has_starts_and_ends(tmp_path: Path) -> None:
    """They are put in order of time."""
    log = tmp_path / "calls.jsonl"
    log.write_text('{"event":"end","boot_s":2.0}\n{"event":"start","boot_s":1.0}\n')

    assert moments(log) == [(1.0, 1), (2.0, -1)]

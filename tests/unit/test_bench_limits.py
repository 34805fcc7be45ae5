"""What `bench limits` makes of the log of a limiter."""

from pathlib import Path

import pytest

from bench import limits
from bench.limiters import HAProxy, Logged, Nginx

FALL_S = 100.0


def passes(from_s: float, to_s: float, each_s: float, lasted_s: float = 1.0) -> list[Logged]:
    """Return calls that were not refused, one after the other."""
    count = round((to_s - from_s) / each_s)
    return [
        Logged(from_s + number * each_s, refused=False, lasted_s=lasted_s)
        for number in range(count)
    ]


def test_the_new_level_is_there_when_it_was_used_for_two_seconds() -> None:
    """Fifty calls at once of a second are fifty calls a second."""
    calls = passes(FALL_S, FALL_S + 5, 0.1) + passes(FALL_S + 5, FALL_S + 20, 0.02)

    assert limits._level_s(calls, 50, FALL_S) == pytest.approx(6.8, abs=0.2)


def test_a_level_with_many_refusals_is_none() -> None:
    """Two seconds in which a tenth is refused are not the new level."""
    refused = [Logged(FALL_S + number / 10, refused=True, lasted_s=0.0) for number in range(100)]
    calls = sorted(passes(FALL_S, FALL_S + 20, 0.02) + refused, key=lambda call: call.at_s)

    assert limits._level_s(calls, 50, FALL_S) == pytest.approx(10.9, abs=0.2)
    assert limits._level_s(calls[:600], 50, FALL_S) == float("inf")


def test_the_logs_of_nginx_and_haproxy_are_read(tmp_path: Path) -> None:
    """Both say when a call ended, its status and how long it took; other lines are left out."""
    nginx = Nginx(folder=tmp_path, upstream="127.0.0.1:1")
    (tmp_path / "calls.log").write_text("1.250 200 0.301\n1.260 429 0.000\n1.270 502 0.1\n")
    haproxy = HAProxy(folder=tmp_path, upstream="127.0.0.1:1")
    haproxy.log.write_text("[NOTICE] started\n1.250 200 301\n1.260 429 0\n")

    both = [Logged(1.25, refused=False, lasted_s=0.301), Logged(1.26, refused=True, lasted_s=0.0)]
    assert nginx.calls() == both
    assert haproxy.calls() == both

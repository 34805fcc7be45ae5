"""An outage is logged when it begins, once a minute while it lasts, and when it ends."""

import logging
import threading

import pytest

from docllm.schemas.runtime.outage import (
    DUTY,
    LOG_EVERY_S,
    MESSAGE_EVERY_S,
    PATIENCE_S,
    LogLimit,
    Outage,
)
from tests.support.clock import HandClock


@pytest.fixture
def clock(caplog: pytest.LogCaptureFixture) -> HandClock:
    """A clock that the test moves; everything is logged."""
    caplog.set_level(logging.INFO)
    return HandClock()


def fails(outage: Outage, clock: HandClock, for_s: float, error: str = "refused") -> None:
    """Let four tries a second fail."""
    end_s = clock.at_s + for_s
    while clock.at_s < end_s:
        outage.failed(error)
        clock.at_s += 0.25


def test_an_outage_is_logged_at_its_begin_each_minute_and_at_its_end(
    clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten minutes of four tries a second are twelve lines.

    They have the number of tries and the newest error.
    """
    outage = Outage(name="the database X", clock=clock)

    fails(outage, clock, 300, "refused")
    fails(outage, clock, 300, "frozen")
    clock.at_s += PATIENCE_S
    outage.answered()

    assert len(caplog.messages) == 11
    assert caplog.messages[0] == "the database X does not answer (refused); docllm tries again"
    assert (
        caplog.messages[1]
        == "the database X has not answered for 63 s, 253 tries; newest error: refused"
    )
    assert caplog.messages[9].endswith("newest error: frozen")
    assert caplog.messages[-1] == "the database X answers again, after 603 s and 2400 tries"
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 10 + ["INFO"]
    assert not outage.logged


def test_a_blip_is_not_logged(clock: HandClock, caplog: pytest.LogCaptureFixture) -> None:
    """Lost connections or deadlocks with answers between them are no outage."""
    outage = Outage(name="the database X", clock=clock)

    for _ in range(20):
        fails(outage, clock, PATIENCE_S - 1)
        clock.at_s += PATIENCE_S
        outage.answered()

    assert caplog.messages == []


def test_answers_between_failures_do_not_end_an_outage(
    clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Answers between failures do not end an outage.

    One broker of three that is away fails every two seconds while the others answer. That is one
    line a minute, not two each time.
    """
    outage = Outage(name="Kafka at X", clock=clock)

    for _ in range(90):
        outage.failed("broker 2: refused")
        outage.answered()
        clock.at_s += 2

    assert len(caplog.messages) == 180 / MESSAGE_EVERY_S
    assert outage.logged


def test_without_patience_every_outage_is_logged_at_once(
    clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Without patience, the first failure is logged at once.

    That is for a server that one part alone asks, twice a second.
    """
    outage = Outage(name="Redis", clock=clock, patience_s=0, hope="this agent goes on alone")

    outage.answered()
    outage.failed("refused")
    outage.failed("refused")
    outage.answered()
    outage.answered()

    assert caplog.messages == [
        "Redis does not answer (refused); this agent goes on alone",
        "Redis answers again, after 0 s and 2 tries",
    ]


def test_all_threads_together_tell_once(clock: HandClock, caplog: pytest.LogCaptureFixture) -> None:
    """Ten threads that wait for the same server log once."""
    outage = Outage(name="the database X", clock=clock)
    outage.failed("refused")
    clock.at_s += PATIENCE_S

    threads = [threading.Thread(target=outage.failed, args=("refused",)) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(caplog.messages) == 1


def test_a_duty_fails_and_works_again(clock: HandClock, caplog: pytest.LogCaptureFixture) -> None:
    """A duty is not a server: the messages say that it fails and works again."""
    outage = Outage(name="the sweep", clock=clock, words=DUTY, patience_s=0)

    outage.failed("denied")
    clock.at_s += MESSAGE_EVERY_S
    assert outage.lasts_s == MESSAGE_EVERY_S
    outage.failed("denied")
    outage.answered()

    assert caplog.messages == [
        "the sweep fails (denied); docllm tries again",
        "the sweep has failed for 60 s, 2 tries; newest error: denied",
        "the sweep works again, after 60 s and 2 tries",
    ]
    assert outage.lasts_s == 0


def test_a_line_comes_at_once_and_then_once_a_minute() -> None:
    """Four questions a second for some minutes: one line for each minute that has begun."""
    clock, minutes = HandClock(), 3
    limit = LogLimit(clock)

    permitted = 0
    for _ in range(int(minutes * LOG_EVERY_S * 4)):
        permitted += limit.permits()
        clock.at_s += 0.25

    assert permitted == minutes

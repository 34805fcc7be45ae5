"""A duty: repeated work, whose failures are logged once and end nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from docllm.agent.maintenance.duty import Duty, repeat
from docllm.schemas.errors import UnreachableError
from docllm.schemas.runtime.outage import Outage


class Enough(Exception):  # noqa: N818 - not an error: the test has seen enough rounds
    """The last pause of a test."""


class ManualClock:
    """A clock that stands still until it is moved; sleeping moves it."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def now_s(self) -> float:
        return self.time_s

    def utc_s(self) -> float:
        return self.time_s

    async def sleep(self, delay_s: float) -> None:
        self.time_s += delay_s


class Work:
    """Work that raises the next of its errors, and counts its calls."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.calls: list[tuple[object, ...]] = []

    async def __call__(self, *args: object) -> None:
        self.calls.append(args)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error


def pauses(clock: ManualClock, *delays_s: float) -> Callable[[], Awaitable[None]]:
    """Return a pause that takes each of these times once, then ends the test."""
    left = list(delays_s)

    async def pause() -> None:
        if not left:
            raise Enough
        await clock.sleep(left.pop(0))

    return pause


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_a_failure_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    work = Work(OSError("away"), OSError("away"), None, None)
    with pytest.raises(Enough):
        asyncio.run(
            repeat([Duty(name="the sweep", work=work, clock=clock)], pauses(clock, 1.0, 1.0, 1.0))
        )

    assert lines(caplog) == [
        ("WARNING", "the sweep fails (away); docllm tries again"),
        ("INFO", "the sweep works again, after 2 s and 2 tries"),
    ]


def test_a_bug_is_raised() -> None:
    duty = Duty(name="d", work=Work(TypeError("a bug")), clock=ManualClock())

    with pytest.raises(TypeError):
        asyncio.run(duty.try_once())


@pytest.mark.parametrize(
    ("error", "logged"), [(UnreachableError("Kafka"), 0), (OSError("disk"), 1)]
)
def test_an_outage_of_kafka_is_not_logged_again(
    caplog: pytest.LogCaptureFixture, error: Exception, logged: int
) -> None:
    clock = ManualClock()
    kafka = Outage(name="Kafka", clock=clock, patience_s=0)
    kafka.failed("connection refused")
    caplog.clear()

    asyncio.run(Duty(name="d", work=Work(error), clock=clock, kafka=kafka).try_once())

    assert len(caplog.records) == logged


def test_a_rare_duty_is_due_after_its_time() -> None:
    clock, work = ManualClock(), Work()
    duty = Duty(name="d", work=work, clock=clock, every_s=30.0)
    with pytest.raises(Enough):
        asyncio.run(repeat([duty], pauses(clock, 29.0, 1.0, 29.0, 1.0)))

    assert len(work.calls) == 2


def test_the_arguments_of_an_attempt_reach_the_work() -> None:
    work = Work()

    asyncio.run(Duty(name="d", work=work, clock=ManualClock()).try_once("route", 7))

    assert work.calls == [("route", 7)]

"""A deletion gives way: it pauses after each page, longer when the database is slow or refuses."""

import asyncio

import pytest
from sqlalchemy.exc import OperationalError

from docllm.producer.retention.pages import FIRST, MAX_ROWS, MAX_S, MIN_ROWS, Pages
from tests.support.clock import HandClock


class Database:
    """A database that takes `each_s` for a task, and refuses the first `refusals` pages."""

    def __init__(
        self, clock: HandClock, each_s: float, refusals: int = 0, code: int = 1205
    ) -> None:
        self.clock, self.each_s, self.refusals, self.code = clock, each_s, refusals, code
        self.sizes: list[int] = []
        self.pauses_s: list[float] = []

    async def page(self, size: int) -> tuple[int, int]:
        self.sizes.append(size)
        self.clock.at_s += size * self.each_s
        if self.refusals:
            self.refusals -= 1
            raise OperationalError("DELETE", {}, Exception(self.code, "no"))
        return 7, size

    def run(self, pages: Pages, times: int = 1) -> None:
        for _ in range(times):
            began_s, before = self.clock.at_s, len(self.sizes)
            assert asyncio.run(pages.run(self.page)) == 7
            busy_s = sum(self.sizes[before:]) * self.each_s
            self.pauses_s.append(self.clock.at_s - began_s - busy_s)


def test_a_page_that_is_refused_is_done_again_at_half_its_size() -> None:
    clock = HandClock()
    database = Database(clock, 0.001, refusals=2)

    database.run(pages := Pages(clock))

    assert database.sizes == [FIRST, FIRST // 2, FIRST // 4]
    assert database.pauses_s[0] > 3.0
    database.run(pages, 50)
    assert max(database.sizes) == MAX_ROWS


def test_pages_do_not_get_smaller_than_the_least() -> None:
    clock = HandClock()
    database = Database(clock, 0.0001, refusals=12)

    database.run(Pages(clock))

    assert database.sizes[-1] == MIN_ROWS


def test_an_error_that_cannot_pass_is_raised() -> None:
    clock = HandClock()

    with pytest.raises(OperationalError):
        Database(clock, 0.001, refusals=1, code=1054).run(Pages(clock))


def test_it_works_half_of_the_time_and_less_when_the_database_is_slow() -> None:
    """Three times as long for each task makes the pause three times as long as the page."""
    clock = HandClock()
    database = Database(clock, 0.001)
    database.run(pages := Pages(clock))
    database.each_s = 0.003
    database.run(pages)

    fast, slow = database.sizes
    assert database.pauses_s == pytest.approx([fast * 0.001, 3 * slow * 0.003])


def test_a_page_during_an_outage_makes_no_long_pause() -> None:
    """A database that stood still says nothing about how busy it is afterwards."""
    clock = HandClock()
    database = Database(clock, 0.0001)
    database.run(pages := Pages(clock))
    for took_s, pause_s in ((14.0, MAX_S), (40.0, 40.0)):
        database.each_s = took_s / pages.size
        database.run(pages)
        assert database.pauses_s[-1] == pytest.approx(pause_s)


def test_a_rate_bounds_the_tasks_of_each_second() -> None:
    clock = HandClock()
    database = Database(clock, 0.0001)
    began_s = clock.at_s

    database.run(Pages(clock, rate=100.0), 5)

    assert sum(database.sizes) / (clock.at_s - began_s) == pytest.approx(100.0)

"""The compactor moves page after page, lets other work in between, and ends in time."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

from docllm.agent.ledger.counts.compaction import CompactionLimits
from docllm.agent.maintenance.cleanup.compactor import ROUND_S, compact

PAGE = 10


class Ledger:
    """A ledger whose pages have these numbers of counts, and a clock that each page moves on."""

    def __init__(self, *pages: int, page_s: float = 0.0) -> None:
        self.left: Iterator[int] = iter(pages)
        self.slept = 0
        self._now_s, self._page_s = 0.0, page_s

    async def write(self, *_: Any) -> int:
        self._now_s += self._page_s
        return next(self.left)

    def now_s(self) -> float:
        return self._now_s

    async def sleep(self, _delay_s: float) -> None:
        self.slept += 1


def compacted(ledger: Ledger) -> int:
    parts = cast("Any", ledger)
    limits = CompactionLimits(page=PAGE)
    return asyncio.run(compact(parts, parts, limits))


def test_it_goes_on_until_a_page_is_not_full() -> None:
    """Other work gets its turn after each full page."""
    ledger = Ledger(PAGE, PAGE, 3)

    assert compacted(ledger) == 2 * PAGE + 3
    assert ledger.slept == 2


def test_it_ends_when_nothing_is_left_or_another_agent_has_the_turn() -> None:
    """Both look alike: a page without a count."""
    assert compacted(Ledger(0)) == 0
    assert compacted(Ledger(PAGE, 0)) == PAGE


def test_it_leaves_the_rest_to_the_next_round() -> None:
    """The other duties of the compactor's round wait for it."""
    ledger = Ledger(PAGE, PAGE, PAGE, page_s=ROUND_S)

    assert compacted(ledger) == 2 * PAGE

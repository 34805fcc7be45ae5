"""New tasks wait while their group has too many."""

import asyncio
from collections import Counter
from typing import Any

from docllm.producer.loading.unfinished import CHECK_EVERY_S, BacklogLimit
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock
from tests.support.doubles import double_of


def waited(most: int, counts: list[int], times: int = 1) -> tuple[list[float], list[str]]:
    """Wait for room while the ledger gives these counts; return the pauses and the words."""
    pauses: list[float] = []
    said: list[str] = []

    async def read(*_: Any) -> Counter[str]:
        return Counter({"acme": counts.pop(0) - 1, "bolt": 1})

    async def sleep(delay_s: float) -> None:
        pauses.append(delay_s)

    backlog = BacklogLimit(
        transactions=double_of(Transactions, read=read),
        clock=double_of(Clock, sleep=sleep),
        group="g",
        most=most,
        say=said.append,
    )

    async def wait() -> None:
        for _ in range(times):
            await backlog.wait()

    asyncio.run(wait())
    return pauses, said


def test_tasks_wait_until_there_are_fewer_and_a_person_is_told_why() -> None:
    """The reason is said once, however long the tasks wait."""
    assert waited(10, [12, 11, 10, 9]) == (
        [CHECK_EVERY_S] * 3,
        ["12 tasks of group g are unfinished: waiting until there are fewer than 10"],
    )


def test_each_wait_is_told() -> None:
    """A load that waits again says so again."""
    pauses, said = waited(10, [10, 9, 11, 9], times=2)

    assert (len(pauses), len(said)) == (2, 2)


def test_nothing_waits_below_the_limit_or_without_one() -> None:
    """The tasks of all tenants count together."""
    assert waited(10, [9]) == ([], [])
    assert waited(0, [1_000_000]) == ([], [])

"""One slow host takes no more than its share of the fetches."""

import asyncio

import pytest

from docllm.agent.documents.reader import HostShares

SLOW = "https://slow.example/a"


class Reading:
    """Holds a place of its URI's host until it is ended."""

    def __init__(self, shares: HostShares, uri: str) -> None:
        self.holds = False
        self._end = asyncio.Event()
        self.task = asyncio.create_task(self._run(shares, uri))

    async def _run(self, shares: HostShares, uri: str) -> None:
        async with shares.hold(uri):
            self.holds = True
            await self._end.wait()

    async def end(self) -> None:
        self._end.set()
        await self.task
        await asyncio.sleep(0)


@pytest.mark.parametrize("same", [SLOW, "HTTPS://user@SLOW.example.:444/b?c"])
def test_a_host_has_its_share_and_others_go_on(same: str) -> None:
    """The third document waits until one of the host's two has come; another host's does not."""

    async def main() -> None:
        shares = HostShares(2)
        first, second, third, other = (
            Reading(shares, uri) for uri in (SLOW, same, SLOW, "https://other.example/a")
        )
        await asyncio.sleep(0)
        assert [one.holds for one in (first, second, third, other)] == [True, True, False, True]

        await first.end()
        assert third.holds
        for one in (second, third, other):
            await one.end()
        assert (shares._places, dict(shares._users)) == ({}, {})

    asyncio.run(main())


def test_a_cancelled_document_leaves_its_place() -> None:
    async def main() -> None:
        shares = HostShares(1)
        first, second, third = (Reading(shares, SLOW) for _ in range(3))
        await asyncio.sleep(0)
        for one in (second, first):
            one.task.cancel()
            await asyncio.wait([one.task])
        await asyncio.sleep(0)

        assert third.holds
        await third.end()
        assert not shares._places

    asyncio.run(main())


@pytest.mark.parametrize("uri", ["file:///a", "s3://bucket/a", "https://[::1/a", "", "https:///a"])
def test_other_documents_have_no_bound(uri: str) -> None:
    async def main() -> None:
        shares = HostShares(1)
        async with shares.hold(uri), shares.hold(uri):
            assert not shares._places

    asyncio.run(main())

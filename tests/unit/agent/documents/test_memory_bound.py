"""Bytes in flight are bounded, in the order of asking, whoever is cancelled."""

import asyncio

from docllm.agent.documents.reader import BytesInFlight


class Holder:
    """Holds bytes until it is let go."""

    def __init__(self, bytes_in_flight: BytesInFlight, size: int) -> None:
        self.holds = False
        self._go = asyncio.Event()
        self.task = asyncio.create_task(self._run(bytes_in_flight, size))

    async def _run(self, bytes_in_flight: BytesInFlight, size: int) -> None:
        async with bytes_in_flight.hold(size):
            self.holds = True
            await self._go.wait()
        self.holds = False

    async def end(self) -> None:
        self._go.set()
        await self.task


def test_the_bytes_in_flight_are_bounded_in_the_order_of_asking() -> None:
    """A small one does not pass a large one that waits, and one above the bound takes it all."""

    async def main() -> None:
        flight = BytesInFlight(10)
        first, large, small = (Holder(flight, size) for size in (6, 100, 1))
        await asyncio.sleep(0)
        assert (first.holds, large.holds, small.holds) == (True, False, False)
        await first.end()
        await asyncio.sleep(0)
        assert (large.holds, small.holds) == (True, False)
        await large.end()
        await asyncio.sleep(0)
        assert small.holds
        await small.end()
        assert flight._free == 10

    asyncio.run(main())


def test_a_cancelled_one_blocks_nobody() -> None:
    """One that is cancelled while it waits, or as its turn comes, leaves its room to others."""

    async def main() -> None:
        flight = BytesInFlight(10)
        first, large, small = (Holder(flight, size) for size in (6, 10, 1))
        await asyncio.sleep(0)
        large.task.cancel()
        await asyncio.wait([large.task])
        await asyncio.sleep(0)
        assert small.holds
        late = Holder(flight, 10)
        await asyncio.sleep(0)
        await small.end()
        first._go.set()
        await asyncio.wait([first.task])
        late.task.cancel()  # its turn has come, and it has not run yet
        await asyncio.wait([late.task])
        await first.end()
        assert (flight._free, len(flight._waiting)) == (10, 0)

    asyncio.run(main())

"""The TCP proxies between docllm's programs and its servers.

All run on one event loop in a thread of their own.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

import uvloop

from tests.faults.doors import Counts, Door, LinkFault, Pair

Result = TypeVar("Result")
ANSWER_S = 30.0


class Proxy:
    """All doors. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._doors: list[Door] = []
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, name: str, port: int, server_port: int) -> Door:
        """Listen on a port for a server, which may start later."""
        door = Door(name, port, server_port)
        self._run(self._listen(door))
        return door

    def set(self, door: Door, wrong: LinkFault, *, reset: bool = False) -> Counts:
        """Change the mode of a door; return its counts until now."""
        return self._now(lambda: door.set(wrong, reset=reset))

    def counts(self, door: Door) -> dict[str, int]:
        """Return a door's counts since its mode was set."""
        return self._now(door.counts.told)

    def ever(self, door: Door) -> dict[str, int]:
        """Return a door's counts since it was opened."""
        return self._now(door.ever)

    def close(self) -> None:
        """Close all doors and connections."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self, door: Door) -> None:
        loop = asyncio.get_running_loop()
        made = await loop.create_server(
            lambda: Pair(door).client, "127.0.0.1", door.port, reuse_address=True, backlog=256
        )
        self._doors.append(door)
        self._servers.append(made)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for door in self._doors:
            for pair in list(door.pairs):
                pair.end()
        await asyncio.sleep(0)  # let the ended connections be notified

    def _now(self, work: Callable[[], Result]) -> Result:
        async def run() -> Result:
            return work()

        return self._run(run())

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S)

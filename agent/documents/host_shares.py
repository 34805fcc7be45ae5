"""Bounds how many documents of one web server an agent reads at once.

Otherwise one slow server would take all the fetches, and all the memory that documents share.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class HostShares:
    """Lets `most` documents of each web server be in flight; others wait in order.

    The server is the one that the task's URI names, also if it redirects to another one.

    Documents from other sources are not bounded.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def hold(self, uri: str) -> AsyncIterator[None]:
        """Hold a place of the URI's host; wait for it if all are taken."""
        host = _host(uri)
        if not host:
            yield
            return
        self._users[host] += 1
        try:
            async with self._places.setdefault(host, asyncio.Semaphore(self._most)):
                yield
        finally:
            self._users[host] -= 1
            if not self._users[host]:  # hosts come from tasks, so unused names must not pile up
                del self._users[host], self._places[host]


def _host(uri: str) -> str:
    """Return the host of an https URI; empty for any other URI."""
    try:
        parts = urlsplit(uri)
        host = parts.hostname or ""
    except ValueError:
        return ""  # its source refuses it
    return host.rstrip(".") if parts.scheme == "https" else ""

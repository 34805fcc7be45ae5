"""HTTP clients for documents, each of which reaches one host at one address.

A client has no key, no cookies, no proxy, and follows no redirect. It never asks a name server: its
host is pinned to an address that was checked, and TLS still verifies the host's name. It trusts the
system's certificates, or those in SSL_CERT_FILE.
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from pyreqwest.client import Client, ClientBuilder

from docllm.schemas.runtime.executors import Executor

_MAX_CLIENTS = 32
_CONNECT = timedelta(seconds=10)
_IDLE = timedelta(seconds=4)  # many servers close an idle connection after 5 s


@dataclass(frozen=True, slots=True)
class PinnedHost:
    """A host with its port, and the address to reach it at."""

    host: str
    port: int
    address: str


class PinnedClients:
    """A cache of clients, one for each pinned host; the least recently used are dropped.

    `executor` builds the clients, because each one loads all trusted certificates.
    """

    def __init__(self, *, executor: Executor) -> None:
        self._executor = executor
        self._clients: OrderedDict[PinnedHost, Client] = OrderedDict()

    async def client(self, pinned: PinnedHost) -> Client:
        """Return the client of a host. Dropped clients end the requests that they have begun."""
        client = self._clients.get(pinned)
        if client is None:
            client = await self._executor(partial(_client, pinned))
            self._clients[pinned] = client
        self._clients.move_to_end(pinned)
        if len(self._clients) > _MAX_CLIENTS:
            self._clients.popitem(last=False)
        return client


def _client(pinned: PinnedHost) -> Client:
    builder = (
        ClientBuilder()
        .user_agent("docllm")
        .https_only(enable=True)
        .no_proxy()
        .follow_redirects(enable=False)
        .referer(enable=False)
        .connect_timeout(_CONNECT)
        .pool_idle_timeout(_IDLE)
    )
    if pinned.host != pinned.address:
        builder = builder.resolve(pinned.host, pinned.address, pinned.port)
    return builder.build()

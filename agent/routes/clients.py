"""The client, the model and the time limit for the calls of each route.

Connections are made by the `connect` that is passed in.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from docllm.agent.ports import LLM, RouteClient
from docllm.agent.routes.names import DEFAULT, RouteNames
from docllm.schemas.clients.llm_address import in_clear
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.account import account, configured_routes
from docllm.schemas.settings.config import Config, Secret
from docllm.schemas.settings.known_models import known_tokens
from docllm.schemas.settings.wordings import Wordings

log = logging.getLogger(__name__)

# Makes a client for an address, a key and headers.
Connect = Callable[[str, Secret | None, Mapping[str, Secret]], LLM]


class RouteClients:
    """The clients of all routes, with one LLM client for each address, key and headers.

    Raises ConfigError, which names the route, for a bad account.
    """

    def __init__(self, *, config: Config, naming: RouteNames, connect: Connect) -> None:
        self._naming = naming
        self._connect = connect
        self._clients: dict[Hashable, LLM] = {}
        # Each with the time by which its last call will have ended.
        self._retired: list[tuple[LLM, float]] = []
        self._configured: dict[str, RouteClient] = {}
        self.prepare(config)(0.0)

    def __call__(self, route: str) -> RouteClient:
        """Return the client of a route.

        A route that nobody configured uses the default route's client, with its own model.
        """
        configured = self._configured.get(route)
        if configured is not None:
            return configured
        default = self._configured[DEFAULT]
        model = self._naming.model_of(route)
        return replace(default, model=model, context_tokens=known_tokens(model or ""))

    def prepare(self, config: Config) -> Callable[[float], None]:
        """Prepare the clients for changed settings, reusing the LLM clients that stay.

        Return what lets calls use them from now on; it is given the time by which all calls of the
        former clients will have ended. Raises ConfigError; then nothing has changed.
        """
        clients: dict[Hashable, LLM] = {}
        try:
            made = {name: self._made(config, name, clients) for name in configured_routes(config)}
        except ConfigError:
            new = [client for identity, client in clients.items() if identity not in self._clients]
            self._retired += [(client, 0.0) for client in new]
            raise
        return partial(self._use, clients, made)

    def _use(
        self, clients: dict[Hashable, LLM], by_route: dict[str, RouteClient], idle_from_s: float
    ) -> None:
        self._retired += [
            (client, idle_from_s)
            for identity, client in self._clients.items()
            if identity not in clients
        ]
        self._clients, self._configured = clients, by_route

    async def close_retired(self, now_s: float) -> None:
        """Close the clients that no route has any more, once their calls have ended."""
        due = [client for client, idle_from_s in self._retired if idle_from_s <= now_s]
        self._retired = [
            (client, idle_from_s) for client, idle_from_s in self._retired if idle_from_s > now_s
        ]
        for error in await _closed(due):
            log.warning("a client that is not used any more did not close: %r", error)

    async def close(self) -> None:
        """Close every client, even if closing another one fails.

        A client that is left open may abort the interpreter's exit.
        """
        retired = [client for client, _ in self._retired]
        for error in await _closed([*self._clients.values(), *retired]):
            raise error

    def _made(self, config: Config, name: str, clients: dict[Hashable, LLM]) -> RouteClient:
        settings = account(config, name)
        identity = settings.identity
        client = clients.get(identity) or self._clients.get(identity)
        if client is None:
            try:
                client = self._connect(settings.base_url or "", settings.api_key, settings.headers)
            except ConfigError as error:
                raise ConfigError(f"route {name}: {error}") from None
        clients[identity] = client
        return RouteClient(
            client,
            settings.model,
            settings.timeout_s,
            settings.structured,
            settings.context_tokens or known_tokens(settings.model or ""),
            Wordings(settings.wordings),
        )


async def _closed(clients: Sequence[LLM]) -> list[BaseException]:
    """Close all clients; return the errors of those that did not close."""
    closed = await asyncio.gather(*(client.close() for client in clients), return_exceptions=True)
    return [error for error in closed if error is not None]


def keys_in_clear(config: Config, proxies: Mapping[str, str]) -> list[str]:
    """Return a warning for each address to which a route's key or headers go unencrypted."""
    accounts = [account(config, name) for name in (DEFAULT, *sorted(config.routes))]
    has_key: dict[str, bool] = {}
    for llm in accounts:
        if llm.base_url and llm.has_secrets:
            has_key[llm.base_url] = has_key.get(llm.base_url, False) or llm.api_key is not None
    warnings = (in_clear(url, proxies, has_key=keyed) for url, keyed in has_key.items())
    return [warning for warning in warnings if warning]

"""The accounts of routes: the client, the model and the time limit for the calls of each.

The clients are made by the `connect` that is passed in.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

from agent.ports import LLM, Account
from agent.routes.names import DEFAULT, RouteNames
from schemas.clients.llm_address import in_clear
from schemas.errors import ConfigError
from schemas.settings.account import account
from schemas.settings.config import Config, Secret

# Makes a client for an address, a key and headers.
Connect = Callable[[str, Secret | None, Mapping[str, Secret]], LLM]


class Accounts:
    """The accounts of all routes, with one client for each address, key and headers.

    Raises ConfigError, which names the route, for a bad account.
    """

    def __init__(self, *, config: Config, naming: RouteNames, connect: Connect) -> None:
        self._config = config
        self._naming = naming
        self._connect = connect
        self._clients: dict[Hashable, LLM] = {}
        self._configured = {name: self._make(name) for name in naming.configured}

    def __call__(self, route: str) -> Account:
        """Return the account of a route.

        A route that nobody configured uses the default route's client, with its own model.
        """
        configured = self._configured.get(route)
        if configured is not None:
            return configured
        default = self._configured[DEFAULT]
        return replace(default, model=self._naming.model_of(route))

    async def close(self) -> None:
        """Close every client, even if closing another one fails.

        A client that is left open may abort the interpreter's exit.
        """
        closed = await asyncio.gather(
            *(client.close() for client in self._clients.values()), return_exceptions=True
        )
        for failure in closed:
            if failure is not None:
                raise failure

    def _make(self, name: str) -> Account:
        settings = account(self._config, name)
        client = self._clients.get(settings.identity)
        if client is None:
            try:
                client = self._connect(settings.base_url or "", settings.api_key, settings.headers)
            except ConfigError as error:
                raise ConfigError(f"route {name}: {error}") from None
            self._clients[settings.identity] = client
        return Account(client, settings.model, settings.timeout_s, settings.structured)


def keys_in_clear(config: Config, proxies: Mapping[str, str]) -> list[str]:
    """Return a warning for each address to which a route's key or headers go unencrypted."""
    accounts = [account(config, name) for name in (DEFAULT, *sorted(config.routes))]
    has_key: dict[str, bool] = {}
    for llm in accounts:
        if llm.base_url and llm.has_secrets:
            has_key[llm.base_url] = has_key.get(llm.base_url, False) or llm.api_key is not None
    warnings = (in_clear(url, proxies, has_key=keyed) for url, keyed in has_key.items())
    return [warning for warning in warnings if warning]

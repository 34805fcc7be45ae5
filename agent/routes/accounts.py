"""The accounts of routes: the client, the model and the time limit for the calls of each.

The clients are made by the `connect` that is passed in.
"""

import asyncio
from collections.abc import Callable, Mapping

from agent.ports import LLM, Account
from agent.routes.names import DEFAULT, RouteNames
from schemas.clients.llm_address import in_clear
from schemas.errors import ConfigError
from schemas.settings.account import account
from schemas.settings.config import Config, Secret

Connect = Callable[[str, Secret | None], LLM]


class Accounts:
    """The accounts of all routes, with one client for each address and key.

    Raises ConfigError, which names the route, for a bad account.
    """

    def __init__(self, *, config: Config, naming: RouteNames, connect: Connect) -> None:
        self._config = config
        self._naming = naming
        self._connect = connect
        self._clients: dict[tuple[str, Secret | None], LLM] = {}
        self._configured = {name: self._make(name) for name in naming.configured}

    def __call__(self, route: str) -> Account:
        """Return the account of a route.

        A route that nobody configured uses the default route's client, with its own model.
        """
        configured = self._configured.get(route)
        if configured is not None:
            return configured
        default = self._configured[DEFAULT]
        return Account(default.llm, self._naming.model_of(route), default.timeout_s)

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
        base_url, api_key = settings.base_url or "", settings.api_key
        client = self._clients.get((base_url, api_key))
        if client is None:
            try:
                client = self._clients[base_url, api_key] = self._connect(base_url, api_key)
            except ConfigError as error:
                raise ConfigError(f"route {name}: {error}") from None
        return Account(client, settings.model, settings.timeout_s)


def keys_in_clear(config: Config, proxies: Mapping[str, str]) -> list[str]:
    """Return a warning for each address that the key of a route goes to unencrypted."""
    accounts = [account(config, name) for name in (DEFAULT, *sorted(config.routes))]
    addresses = dict.fromkeys(llm.base_url for llm in accounts if llm.base_url and llm.api_key)
    return [warning for address in addresses if (warning := in_clear(address, proxies))]

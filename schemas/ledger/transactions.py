"""Transactions of one database, for code on an event loop: each is one call of one executor."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from docllm.schemas.ledger.database import Connection, Database
from docllm.schemas.runtime.executors import Executor

Params = ParamSpec("Params")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """Runs functions that take a connection, with the arguments that come after it.

    Every function must be safe to run twice, as `Database` says.
    """

    database: Database
    executor: Executor

    async def write(
        self,
        work: Callable[Concatenate[Connection, Params], T],
        *args: Params.args,
        **kwargs: Params.kwargs,
    ) -> T:
        """Return the result of `work`, run in one transaction that is tried until it commits."""
        return await self.executor(
            lambda: self.database.run(lambda connection: work(connection, *args, **kwargs))
        )

    async def write_once(
        self,
        work: Callable[Concatenate[Connection, Params], T],
        *args: Params.args,
        **kwargs: Params.kwargs,
    ) -> T:
        """Return the result of `work`, run in one transaction that is not retried."""
        return await self.executor(
            lambda: self.database.run(lambda connection: work(connection, *args, **kwargs), tries=1)
        )

    async def write_singly(
        self,
        work: Callable[Concatenate[Connection, Params], T],
        *args: Params.args,
        **kwargs: Params.kwargs,
    ) -> T:
        """Return the result of `work`, whose statements may commit one by one, as on a server."""
        run = self.database.run if self.database.sqlite else self.database.run_singly
        return await self.executor(
            lambda: run(lambda connection: work(connection, *args, **kwargs))
        )

    async def read(
        self,
        work: Callable[Concatenate[Connection, Params], T],
        *args: Params.args,
        **kwargs: Params.kwargs,
    ) -> T:
        """Return the result of `work`, which only reads, without a common transaction."""
        return await self.executor(
            lambda: self.database.run_singly(lambda connection: work(connection, *args, **kwargs))
        )

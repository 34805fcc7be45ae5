"""Runs a Lua script in Redis, which the agent can do without."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from docllm.agent.quota.grants import RedisAwayError
from docllm.producer.checks.redis_rights import refused_commands
from docllm.schemas.clients.redis import redis_client, redis_reason
from docllm.schemas.settings.config import Secret

TIMEOUT_S = 1.0  # the longest wait for one answer
ALL_S = 2.0  # the longest time of a whole exchange

Q = TypeVar("Q")
A = TypeVar("A")

# The KEYS and the ARGV of one call of a script.
KeysAndArguments = tuple[Sequence[str], Sequence[str | int | float]]


class RedisScript:
    """A script in Redis. `group` is in the names of keys."""

    def __init__(self, *, url: Secret, script: str, group: str) -> None:
        self._url = url
        self._script = script
        self._group = group
        self._client: Redis | None = None

    async def run(
        self,
        requests: Sequence[Q],
        keys_and_arguments: Callable[[Q], KeysAndArguments],
        read: Callable[[Q, Any], A],
    ) -> list[A]:
        """Run the script for each request, all in one pipeline, and return what the answers say.

        Raises RedisAwayError if that fails or takes two seconds.
        """
        with _no_cancellation_lost():
            try:
                async with asyncio.timeout(ALL_S):
                    answers = await self._answers([keys_and_arguments(one) for one in requests])
                return [read(*pair) for pair in zip(requests, answers, strict=True)]
            except Exception as error:  # noqa: BLE001 - whatever fails, the agent goes on
                reason = await self._refused(error) or redis_reason(error, self._url)
                await self.close()  # a connection that did not answer may answer late
                raise RedisAwayError(reason) from None

    async def close(self) -> None:
        """Drop the connection; the next `run` opens another."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                async with asyncio.timeout(TIMEOUT_S):
                    await client.aclose()

    async def _answers(self, calls: Sequence[KeysAndArguments]) -> list[Any]:
        if self._client is None:
            self._client = redis_client(self._url, timeout_s=TIMEOUT_S)
        script = self._client.register_script(self._script)
        async with self._client.pipeline(transaction=False) as pipeline:
            for keys, arguments in calls:
                await script(keys, arguments, client=pipeline)
            return list(await pipeline.execute())

    async def _refused(self, error: Exception) -> str:
        """Name the commands that Redis refuses to its user, if that is the error.

        For a script, the error of Redis does not name them.
        """
        if not isinstance(error, ResponseError) or self._client is None:
            return ""
        with suppress(Exception):
            async with asyncio.timeout(TIMEOUT_S):
                if names := await refused_commands(self._client, self._group):
                    return f"it refuses {names} to its user; run: docllm check"
        return ""


@contextmanager
def _no_cancellation_lost() -> Iterator[None]:
    """Raise CancelledError at the end if the body was cancelled and went on.

    Redis's client awaits each write by `asyncio.wait_for`, which in Python 3.11 loses a
    cancellation that comes when the write has just ended (CPython issue 86296). A duty would then
    run on, and a drain would wait for it until the watchdog ends the agent.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError

"""The grant store in Redis: a pipeline with one `quota.lua` call for each account.

An account has four keys, each with a time to live and the account's digest in braces. The groups
that use one Redis and one account share its limits.

Tested by tests/contract/test_quota.py and tests/contract/test_redis_quota.py.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from agent.quota.grants import DayCount, QuotaAnswer, QuotaAwayError, QuotaRequest
from producer.checks.redis_rights import refused
from schemas.settings.config import Secret

TIMEOUT_S = 1.0  # of one answer
ALL_S = 2.0  # of a whole exchange
KEEP_S = 2 * 86_400  # calls of a day are counted
_LIMITS = ("rpm", "tpm", "itpm", "otpm", "rpd", "in_flight")
_PARTS = ("account", "agents", "seen", "hungry")


class RedisGrantStore:
    """The port `GrantStore` on Redis. `agent` is a name that no other process has."""

    def __init__(self, *, url: Secret, agent: str) -> None:
        self._url = url
        self._agent = agent
        self._script = files(__package__).joinpath("quota.lua").read_text("utf-8")
        self._client: Redis | None = None

    async def exchange(self, requests: Sequence[QuotaRequest]) -> list[QuotaAnswer]:
        """Run the script for each request."""
        if not requests:
            return []
        try:
            async with asyncio.timeout(ALL_S):
                answers = await self._run(requests)
            return [_answer(*pair) for pair in zip(requests, answers, strict=True)]
        except Exception as error:  # noqa: BLE001 - whatever fails, the agent goes on without Redis
            reason = await self._refused(error) or _reason(error)
            await self.close()  # a connection that did not answer may answer late
            raise QuotaAwayError(reason) from None

    async def close(self) -> None:
        """Drop the connection; the next `exchange` opens another."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                async with asyncio.timeout(TIMEOUT_S):
                    await client.aclose()

    async def _refused(self, error: Exception) -> str:
        """Name the commands that Redis refuses to its user, if that is the error."""
        if not isinstance(error, ResponseError) or self._client is None:
            return ""
        with suppress(Exception):
            async with asyncio.timeout(TIMEOUT_S):
                if names := await refused(self._client, "quota"):
                    return f"it refuses {names} to its user; run: python -m producer check"
        return ""

    async def _run(self, requests: Sequence[QuotaRequest]) -> list[Any]:
        if self._client is None:
            self._client = Redis.from_url(
                self._url.reveal(),
                retry=Retry(NoBackoff(), 0),
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=TIMEOUT_S,
            )
        grant = self._client.register_script(self._script)
        async with self._client.pipeline(transaction=False) as pipeline:
            for request in requests:
                keys = [f"docllm:quota:{{{request.key}}}:{part}" for part in _PARTS]
                await grant(keys, [self._agent, *_arguments(request)], client=pipeline)
            return list(await pipeline.execute())


def _arguments(request: QuotaRequest) -> Iterator[int | float]:
    """Yield the arguments of the script after the agent, in the order of the table at its head."""
    yield from (request.sequence, request.running)
    refund, limits = request.refund, request.limits.given
    yield from (refund.requests, refund.tokens_in, refund.tokens_out)
    yield from (request.refused, request.retry_after_s)
    yield -1 if request.remaining is None else request.remaining
    yield from _day(request.used_today)
    yield from (limits.get(name, 0) for name in _LIMITS)
    yield KEEP_S
    yield from (request.in_hand, request.ends)
    yield from _day(request.told_today)
    for call in request.waiting:
        yield from (call.charge.tokens_in, call.charge.tokens_out)


def _day(count: DayCount | None) -> tuple[int, int]:
    return (-1, -1) if count is None else (count.day, count.calls)


def _answer(request: QuotaRequest, answer: Any) -> QuotaAnswer:
    granted, seats, paused_ms, accepted_share, agents, name, day, calls = answer
    # An option of the address decides whether Redis's client returns str or bytes.
    binding = name if isinstance(name, str) else name.decode()
    return QuotaAnswer(
        granted=tuple(number < granted for number in range(len(request.waiting))),
        seats=None if request.limits.in_flight is None else seats,
        paused_s=float(paused_ms) / 1000,
        accepted_share=float(accepted_share),
        agents=agents,
        binding=binding,
        today=DayCount(day=day, calls=calls),
    )


def _reason(error: Exception) -> str:
    """Return the text of an error that may be shown; other errors quote the address."""
    if isinstance(error, TypeError | ValueError):
        return "the address has options that Redis clients do not know; check DOCLLM_REDIS_URL"
    if isinstance(error, RedisConnectionError | RedisTimeoutError):
        return str(error)
    return type(error).__name__

"""The board in Redis: one call of `board.lua` for each route, all sent in one pipeline.

Times are measured by Redis's own clock; no agent's clock is trusted. A route has three keys, each
with a time to live. `docllm:GROUP:route:NAME:state` is a hash of the shared state, `...:turn` is
the name of the agent that may probe, and `...:seen` is a hash of each agent's last outcomes.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from agent.routes.sharing.board import TURN_S, BoardAwayError, BoardState, RouteReport
from producer.checks.redis_rights import refused
from producer.text.printable import shown
from schemas.settings.config import Secret
from schemas.task.wording import one_line

TIMEOUT_S = 1.0  # of one answer
ALL_S = 2.0  # of a whole exchange
FRESH_S = 3.0  # older outcomes of other agents say nothing about the present
KEEP_S = 3600
_REASON_CHARS = 300


class RedisBoard:
    """The port `Board` on Redis. `agent` is a name that no other process has."""

    def __init__(self, *, url: Secret, group: str, agent: str) -> None:
        self._url = url
        self._group = group
        self._prefix = f"docllm:{group}:route:"
        self._agent = agent
        self._script = files(__package__).joinpath("board.lua").read_text("utf-8")
        self._client: Redis | None = None

    async def sync(self, reports: Sequence[RouteReport]) -> list[BoardState]:
        """Run the script for each route."""
        try:
            async with asyncio.timeout(ALL_S):
                return [_state_of(answer) for answer in await self._run(reports)]
        except Exception as error:  # noqa: BLE001 - whatever fails, the agent goes on without Redis
            reason = await self._refused(error) or _reason(error)
            await self.close()  # a connection that did not answer may answer late
            raise BoardAwayError(reason) from None

    async def close(self) -> None:
        """Drop the connection; the next `sync` opens another."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                async with asyncio.timeout(TIMEOUT_S):
                    await client.aclose()

    async def _refused(self, error: Exception) -> str:
        """Name the commands that Redis refuses to its user, if that is the error.

        For a script, the error of Redis does not name them.
        """
        if not isinstance(error, ResponseError) or self._client is None:
            return ""
        with suppress(Exception):
            async with asyncio.timeout(TIMEOUT_S):
                if names := await refused(self._client, self._group):
                    return f"it refuses {names} to its user; run: python -m producer check"
        return ""

    async def _run(self, reports: Sequence[RouteReport]) -> list[Any]:
        if self._client is None:
            self._client = Redis.from_url(
                self._url.reveal(),
                retry=Retry(NoBackoff(), 0),
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=TIMEOUT_S,
            )
        meet = self._client.register_script(self._script)
        async with self._client.pipeline(transaction=False) as pipeline:
            for report in reports:
                await meet(self._keys(report.route), self._arguments(report), client=pipeline)
            return list(await pipeline.execute())

    def _keys(self, route: str) -> list[str]:
        return [f"{self._prefix}{route}:{part}" for part in ("state", "turn", "seen")]

    def _arguments(self, report: RouteReport) -> list[str | int]:
        """Return the arguments of the script, in the order of the table at its head."""
        stop = (int(report.parked), report.reason[:_REASON_CHARS], _ms(report.retry_s))
        times = (_ms(report.interval_s), _ms(TURN_S), _ms(FRESH_S), KEEP_S)
        outcomes = (report.ok, report.failed)
        return [
            self._agent, *outcomes, report.generation, report.stance, *stop, report.turn, *times
        ]  # fmt: skip


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _state_of(answer: Any) -> BoardState:
    generation, stopped, parked, reason, retry_ms, turn = answer
    # An option of the address decides whether Redis's client returns str or bytes.
    text = reason if isinstance(reason, str) else reason.decode("utf-8", "replace")
    text = shown(one_line(text), _REASON_CHARS)
    return BoardState(generation, bool(stopped), bool(parked), text, retry_ms / 1000, bool(turn))


def _reason(error: Exception) -> str:
    """Return the text of an error that may be shown.

    Errors of the connection may be shown as they are. Other errors of the client quote the address.
    """
    if isinstance(error, TypeError | ValueError):
        return "the address has options that Redis clients do not know; check DOCLLM_REDIS_URL"
    if isinstance(error, RedisConnectionError | RedisTimeoutError):
        return str(error)
    return type(error).__name__

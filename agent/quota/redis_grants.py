"""The grant store in Redis: a pipeline with one `quota.lua` call for each account.

An account has four keys, each with a time to live and the account's digest in braces. The groups
that use one Redis and one account share its limits.
"""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

from docllm.agent.quota.grants import DayCount, QuotaAnswer, QuotaRequest
from docllm.agent.quota.redis_scripts import KeysAndArguments, RedisScript
from docllm.schemas.settings.config import Secret

KEEP_S = 2 * 86_400  # calls of a day are counted
_LIMITS = ("rpm", "tpm", "itpm", "otpm", "rpd", "in_flight")
_PARTS = ("account", "agents", "seen", "hungry")


class RedisGrantStore:
    """The port `GrantStore` on Redis. `agent` is a name that no other process has."""

    def __init__(self, *, url: Secret, agent: str) -> None:
        self._agent = agent
        script = files(__package__).joinpath("quota.lua").read_text("utf-8")
        self._script = RedisScript(url=url, script=script, group="quota")

    async def exchange(self, requests: Sequence[QuotaRequest]) -> list[QuotaAnswer]:
        """Run the script for each request."""
        return await self._script.run(requests, self._keys_and_arguments, _answer)

    async def close(self) -> None:
        """Drop the connection; the next `exchange` opens another."""
        await self._script.close()

    def _keys_and_arguments(self, request: QuotaRequest) -> KeysAndArguments:
        keys = [f"docllm:quota:{{{request.key}}}:{part}" for part in _PARTS]
        return keys, [self._agent, *_arguments(request)]


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
    yield from (request.uncounted, request.unrecorded)
    for call in request.waiting:
        yield from (call.charge.tokens_in, call.charge.tokens_out)


def _day(count: DayCount | None) -> tuple[int, int]:
    return (-1, -1) if count is None else (count.day, count.calls)


def _answer(request: QuotaRequest, answer: Any) -> QuotaAnswer:
    granted, seats, paused_ms, accepted_share, agents, name, day, calls, began_ms = answer[:9]
    starts_in_ms, every_ms = answer[9:]
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
        began_ms=began_ms,
        starts_in_s=float(starts_in_ms) / 1000,
        starts_every_s=float(every_ms) / 1000,
    )

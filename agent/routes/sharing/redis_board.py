"""The board in Redis: one script call for each route, all sent in one pipeline.

Times are measured by Redis's own clock; no agent's clock is trusted. A route has three keys, each
with a time to live. `docllm:GROUP:route:NAME:state` is a hash of the shared state, `...:turn` is
the name of the agent that may probe, and `...:seen` is a hash of each agent's last outcomes.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
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

TIMEOUT_S, ALL_S = 1.0, 2.0
FRESH_S = 3.0  # older outcomes of other agents say nothing about the present
KEEP_S = 3600
_REASON_CHARS = 300

# KEYS  1 state          hash: generation, stopped, parked, reason, retry_at (ms, by Redis' clock)
#       2 turn           string: the agent that may probe; expires
#       3 seen           hash: agent -> "ms of its last report, ms of its last outcomes, ok, failed"
# ARGV  1 agent          2 ok                 3 failed            outcomes since its last report
#       4 generation     the newest it knows  5 stance            goes, stopped, joined, well
#       6 parked 0|1     7 reason             8 retry_ms          its own stop; until its next probe
#       9 turn           none, want, keep, leave
#      10 interval_ms    from one probe to the next
#      11 turn_ms       12 fresh_ms          13 keep_s            lives of turn, outcomes and keys
# gives {generation, stopped 0|1, parked 0|1, reason, ms until the next probe, has the turn 0|1}
MEET = """
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local agent, ok, failed, known, stance = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local fresh = tonumber(ARGV[12])

local outcomes = string.match(redis.call('HGET', KEYS[3], agent) or '', '^%d+ (.*)$') or '0 0 0'
if ok + failed > 0 then outcomes = string.format('%.0f %d %d', now, ok, failed) end
redis.call('HSET', KEYS[3], agent, string.format('%.0f ', now) .. outcomes)

local state = redis.call('HMGET', KEYS[1], 'generation', 'stopped', 'parked', 'reason', 'retry_at')
local generation, stopped = tonumber(state[1] or 0), state[2] == '1'
local parked, reason, retry_at = state[3] or '0', state[4] or '', tonumber(state[5] or 0)
local changed = false

local function stop()
  stopped, parked, reason, retry_at, changed = true, ARGV[6], ARGV[7], now + tonumber(ARGV[8]), true
end

-- the agents that were seen just now besides this one: none, or half of what they met failed
local function borne_out()
  local others, good, bad = false, 0, 0
  local seen = redis.call('HGETALL', KEYS[3])
  for i = 1, #seen, 2 do
    local at, at_outcomes, its_ok, its_failed = string.match(seen[i + 1], '^(%d+) (%d+) (%d+) (%d+)$')
    if now - at > 20 * fresh then
      redis.call('HDEL', KEYS[3], seen[i])
    elseif seen[i] ~= agent and now - at <= fresh then
      others = true
      if now - at_outcomes <= fresh then good, bad = good + its_ok, bad + its_failed end
    end
  end
  return not others or (bad > 0 and bad >= good)
end

if known > generation then  -- Redis has lost its memory: what an agent knows holds
  generation, stopped, changed = known, false, true
  if stance == 'joined' then stop() end
end
if stance == 'well' and stopped and known == generation then
  generation, stopped, parked, reason, changed = generation + 1, false, '0', '', true
  redis.call('DEL', KEYS[2])
elseif stance == 'stopped' and not stopped and borne_out() then
  generation = generation + 1
  stop()
end
-- The clock may have been set back, and anybody may have written the keys: no wait is longer than
-- that of the agents, and no turn longer than theirs.
local latest = now + math.max(tonumber(ARGV[8]), tonumber(ARGV[10]))
if stopped and not (retry_at <= latest) then retry_at, changed = latest, true end
local left_ms = redis.call('PTTL', KEYS[2])
if left_ms == -1 or left_ms > tonumber(ARGV[11]) then redis.call('DEL', KEYS[2]) end

local mine = redis.call('GET', KEYS[2]) == agent
if mine and (ARGV[9] == 'leave' or not stopped) then
  redis.call('DEL', KEYS[2])
  mine = false
elseif mine and ARGV[9] ~= 'none' then
  redis.call('PEXPIRE', KEYS[2], ARGV[11])
elseif ARGV[9] == 'want' and stopped and now >= retry_at then
  mine = redis.call('SET', KEYS[2], agent, 'NX', 'PX', ARGV[11]) ~= false
  if mine then retry_at, changed = now + tonumber(ARGV[10]), true end
end

if changed then
  redis.call('HSET', KEYS[1], 'generation', generation, 'stopped', stopped and 1 or 0, 'parked', parked, 'reason', reason,
             'retry_at', string.format('%.0f', retry_at))
end
redis.call('EXPIRE', KEYS[1], ARGV[13])
redis.call('EXPIRE', KEYS[3], ARGV[13])
return {generation, stopped and 1 or 0, tonumber(parked), reason, math.max(0, retry_at - now), mine and 1 or 0}
"""


class RedisBoard:
    """The port `Board` on Redis. `agent` is a name that no other process has."""

    def __init__(self, *, url: Secret, group: str, agent: str) -> None:
        self._url = url
        self._group = group
        self._prefix = f"docllm:{group}:route:"
        self._agent = agent
        self._client: Redis | None = None

    async def sync(self, reports: Sequence[RouteReport]) -> list[BoardState]:
        """Run the script for each route."""
        try:
            async with asyncio.timeout(ALL_S):
                return [_said(answer) for answer in await self._run(reports)]
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
        meet = self._client.register_script(MEET)
        async with self._client.pipeline(transaction=False) as pipeline:
            for one in reports:
                await meet(self._keys(one.route), self._arguments(one), client=pipeline)
            return list(await pipeline.execute())

    def _keys(self, route: str) -> list[str]:
        return [f"{self._prefix}{route}:{part}" for part in ("state", "turn", "seen")]

    def _arguments(self, one: RouteReport) -> list[str | int]:
        stop = (int(one.parked), one.reason[:_REASON_CHARS], _ms(one.retry_s))
        times = (_ms(one.interval_s), _ms(TURN_S), _ms(FRESH_S), KEEP_S)
        return [
            self._agent,
            one.ok,
            one.failed,
            one.generation,
            one.stance,
            *stop,
            one.turn,
            *times,
        ]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _said(answer: Any) -> BoardState:
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
    return (
        str(error)
        if isinstance(error, RedisConnectionError | RedisTimeoutError)
        else type(error).__name__
    )

"""The board in Redis: one call of `board.lua` for each route, all sent in one pipeline.

Times are measured by Redis's own clock; no agent's clock is trusted. A route has three keys, each
with a time to live. `docllm:GROUP:route:NAME:state` is a hash of the shared state, `...:turn` is
the name of the agent that may probe, and `...:seen` is a hash of each agent's last outcomes.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from docllm.agent.quota.redis_scripts import KeysAndArguments, RedisScript
from docllm.agent.routes.sharing.board import TURN_S, BoardState, RouteReport
from docllm.producer.text.printable import shown
from docllm.schemas.settings.config import Secret
from docllm.schemas.text.wording import one_line

FRESH_S = 3.0  # older outcomes of other agents say nothing about the present
KEEP_S = 3600
_REASON_CHARS = 300


class RedisBoard:
    """The port `Board` on Redis. `agent` is a name that no other process has."""

    def __init__(self, *, url: Secret, group: str, agent: str) -> None:
        self._prefix = f"docllm:{group}:route:"
        self._agent = agent
        script = files(__package__).joinpath("board.lua").read_text("utf-8")
        self._script = RedisScript(url=url, script=script, group=group)

    async def sync(self, reports: Sequence[RouteReport]) -> list[BoardState]:
        """Run the script for each route."""
        return await self._script.run(reports, self._keys_and_arguments, _state_of)

    async def close(self) -> None:
        """Drop the connection; the next `sync` opens another."""
        await self._script.close()

    def _keys_and_arguments(self, report: RouteReport) -> KeysAndArguments:
        """Return what the script takes, in the order of the tables at its head."""
        keys = [f"{self._prefix}{report.route}:{part}" for part in ("state", "turn", "seen")]
        stop = (int(report.parked), report.reason[:_REASON_CHARS], _ms(report.retry_s))
        times = (_ms(report.interval_s), _ms(TURN_S), _ms(FRESH_S), KEEP_S)
        outcomes = (report.ok, report.failed)
        return keys, [
            self._agent, *outcomes, report.generation, report.stance, *stop, report.turn, *times
        ]  # fmt: skip


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _state_of(_report: RouteReport, answer: Any) -> BoardState:
    generation, stopped, parked, reason, retry_ms, turn = answer
    # An option of the address decides whether Redis's client returns str or bytes.
    text = reason if isinstance(reason, str) else reason.decode("utf-8", "replace")
    text = shown(one_line(text), _REASON_CHARS)
    return BoardState(generation, bool(stopped), bool(parked), text, retry_ms / 1000, bool(turn))

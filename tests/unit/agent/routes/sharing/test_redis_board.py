"""Redis is optional: whatever its connection does, the board reports it away, no agent ends."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agent.routes.sharing.board import BoardAwayError, RouteReport
from agent.routes.sharing.redis_board import RedisBoard
from schemas.settings.config import Secret


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "unable to perform operation on <TCPTransport closed=True>; the handler is closed"
        ),
        ConnectionResetError(104, "reset"),
        # Caused by an option of the address.
        AttributeError("'str' object has no attribute 'decode'"),
        KeyError("what nobody thought of"),
    ],
)
def test_a_connection_that_was_reset_is_a_board_that_is_away(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A connection that was reset means that the board is away.

    A fault run found that uvloop raises RuntimeError for it, and agents ended with 5 while Redis
    was killed.
    """

    async def reset(_board: RedisBoard, _reports: Sequence[RouteReport]) -> list[Any]:
        raise error

    monkeypatch.setattr(RedisBoard, "_run", reset)

    with pytest.raises(BoardAwayError):
        asyncio.run(RedisBoard(url=Secret("redis://127.0.0.1:1/0"), group="g", agent="a").sync([]))

"""Redis is optional: whatever its connection does, the board reports it away, no agent ends."""

import asyncio
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import pytest

from docllm.agent.quota.grants import RedisAwayError
from docllm.agent.quota.redis_scripts import KeysAndArguments, RedisScript
from docllm.agent.routes.sharing.redis_board import RedisBoard
from docllm.schemas.settings.config import Secret
from tests.contract.providers.test_board import SAY


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

    async def reset(_script: RedisScript, _calls: Sequence[KeysAndArguments]) -> list[Any]:
        raise error

    monkeypatch.setattr(RedisScript, "_answers", reset)

    with pytest.raises(RedisAwayError):
        asyncio.run(RedisBoard(url=Secret("redis://127.0.0.1:1/0"), group="g", agent="a").sync([]))


def test_the_table_at_the_head_of_the_script_names_what_it_takes_and_uses() -> None:
    """The script's table has each key and argument that the board sends and the script reads."""
    board = RedisBoard(url=Secret("redis://127.0.0.1:1/0"), group="g", agent="a")
    script = files("docllm.agent.routes.sharing").joinpath("board.lua").read_text("utf-8")
    head = script[: script.index("local now")]

    for name, sent in zip(("KEYS", "ARGV"), board._keys_and_arguments(SAY), strict=True):
        table = head.partition(f"-- {name}")[2].partition("--\n")[0]
        numbers = {int(number) for number in re.findall(r"(?:^|--) +(\d+) \w", table)}
        used = {int(number) for number in re.findall(rf"{name}\[(\d+)\]", script)}
        assert numbers == used == set(range(1, len(sent) + 1))

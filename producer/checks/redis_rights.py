"""Finds the commands that agents and their script need and that Redis denies to its user.

A script's error does not name the denied command, so `check` and agents test each command here.
"""

import hashlib
import re
import secrets

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

ENOUGH = "~docllm:* +@connection +@read +@write +@scripting +info +time"
_TEST_KEY_LIVES_MS = 10_000  # where DEL is refused
_SCRIPT = "return 1"
_DIGEST = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()
_ABOUT_KEYS = re.compile(r"access (one of the keys|a key)")
_KEY = object()
_COMMANDS = (
    ("TIME",),
    ("SET", _KEY, 1, "NX", "PX", _TEST_KEY_LIVES_MS),
    ("GET", _KEY),
    ("PTTL", _KEY),
    ("PEXPIRE", _KEY, _TEST_KEY_LIVES_MS),
    ("DEL", _KEY),
    ("HSET", _KEY, "field", 1),
    ("HGET", _KEY, "field"),
    ("HMGET", _KEY, "field"),
    ("HGETALL", _KEY),
    ("EXPIRE", _KEY, _TEST_KEY_LIVES_MS // 1000),
    ("HDEL", _KEY, "field"),
    ("HVALS", _KEY),
    ("ZADD", _KEY, 1, "member"),
    ("ZCARD", _KEY),
    ("ZRANGEBYSCORE", _KEY, 0, 1),
    ("ZSCORE", _KEY, "member"),
    ("ZREM", _KEY, "member"),
    ("ZREMRANGEBYSCORE", _KEY, 0, 1),
    ("SCRIPT LOAD", _SCRIPT),
    ("SCRIPT EXISTS", _DIGEST),
    ("EVALSHA", _DIGEST, 0),
)
NAMES = frozenset(str(command[0]) for command in _COMMANDS)


async def refused_commands(client: Redis, group: str) -> str:
    """Return the commands that the user may not send, and the keys that it may not use.

    Empty when nothing is refused. They are tried on a key of their own, which is gone afterwards.
    Raises the first other error with which Redis answers a command.
    """
    key = f"docllm:{group}:check:{secrets.token_hex(8)}"
    async with client.pipeline(transaction=False) as pipeline:
        for command in _COMMANDS:
            pipeline.execute_command(*(key if part is _KEY else part for part in command))
        answers = await pipeline.execute(raise_on_error=False)
    names = [
        "the keys docllm:*" if _ABOUT_KEYS.search(str(answer)) else str(name)
        for (name, *_), answer in zip(_COMMANDS, answers, strict=True)
        if isinstance(answer, NoPermissionError)
    ]
    error = next((answer for answer in answers if isinstance(answer, Exception)), None)
    if error and not names:
        raise error
    return ", ".join(dict.fromkeys(names))

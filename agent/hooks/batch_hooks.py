"""Tells the end of a batch to a function, a server or a command."""

import asyncio
import os
import shlex
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import IO, Any

import orjson
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.http import Url

from docllm.agent.handlers.registry import RunFunction
from docllm.agent.hooks.functions import BatchEnd, NotToldError, Tell, function_of
from docllm.agent.process.containment import current_task, enter_handler
from docllm.schemas.clients.http import connected, why
from docllm.schemas.clients.llm_address import is_loopback
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.kinds import BatchHook
from docllm.schemas.settings.secret import Secret

POST_S = 30.0
_OK, _REDIRECTED = 2, 3  # hundreds of a status
_SHELL_SIGNS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1"})
_TAIL_BYTES = 4096  # of what a command says
_TAIL_CHARS = 300


def load_batch_hook(
    setting: BatchHook, *, runner: Callable[[Callable[..., Any]], RunFunction]
) -> Tell:
    """Return what tells the end of a batch as the setting says. Raises ConfigError."""
    if setting.url is not None:
        return partial(_post, _require_private(setting.url))
    if setting.command is not None:
        return partial(_run_command, _without_shell(shlex.split(setting.command.reveal())))
    try:
        function = function_of(setting.function, "end")
    except ConfigError as error:
        raise ConfigError(f"hooks.on_batch_done: {error}") from None
    return partial(_call, function, runner(function))


async def _call(function: Callable[..., Any], run: RunFunction, end: BatchEnd) -> None:
    # There is no attempt whose context it could get; its name is for the log.
    context: Any = SimpleNamespace(name=f"on_batch_done of {end.batch}")
    enter_handler(current_task())
    await run(lambda _context: function(end), context)


def _require_private(address: Secret) -> Secret:
    """Refuse plain HTTP to another machine. Raises ConfigError."""
    url = address.reveal()
    try:
        Url(url)
    except ValueError:
        raise ConfigError("hooks.on_batch_done is not an address that can be called") from None
    if not url.lower().startswith("https:") and not is_loopback(url):
        raise ConfigError(
            "hooks.on_batch_done is an http:// address, which anybody in between can read and "
            "change; write https://, or http:// for an address of this machine"
        )
    return address


def _without_shell(words: list[str]) -> list[str]:
    """Refuse a command that a shell would have to run: it would get the signs as its arguments."""
    if signs := sorted(_SHELL_SIGNS.intersection(words)):
        raise ConfigError(
            f"hooks.on_batch_done: its command has {signs[0]!r}, and runs without a shell; write "
            "{ command = \"sh -c '...'\" }"
        )
    return words


def _as_json(end: BatchEnd) -> bytes:
    return orjson.dumps(asdict(end))


async def _post(address: Secret, end: BatchEnd) -> None:
    """POST the end. Redirects are not followed, so that nobody else gets what the address holds."""
    url, limit = address.reveal(), timedelta(seconds=POST_S)
    try:
        request = connected(url, limit).post(url).timeout(limit)
        request = request.header("content-type", "application/json").body_bytes(_as_json(end))
        response = await request.build().send()
    except PyreqwestError as error:
        raise NotToldError(f"its server cannot be reached: {why(error)}") from None
    kind = response.status // 100
    if kind != _OK:
        redirected = "; redirects are not followed" if kind == _REDIRECTED else ""
        raise NotToldError(f"its server answered {response.status}{redirected}")


async def _run_command(words: list[str], end: BatchEnd) -> None:
    """Run a command in a session of its own, without a shell; its input is the end as JSON.

    What is left of the session when the command has ended, or is to end, is killed. Files need no
    reader that waits for whoever else holds the end of a pipe.
    """
    with TemporaryFile() as told, TemporaryFile() as said:
        told.write(_as_json(end))
        told.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=told, stdout=asyncio.subprocess.DEVNULL, stderr=said,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise NotToldError(f"its command cannot be run: {error.strerror}") from None
        try:
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if code:
            ended = f"exit code {code}" if code > 0 else f"signal {-code}"
            last_line = _last_line(said)
            raise NotToldError(f"its command ended with {ended}{last_line and f': {last_line}'}")


def _last_line(said: IO[bytes]) -> str:
    """Return the last line that is not empty, or its end; empty if there is none."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - _TAIL_BYTES))
    lines = said.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[-_TAIL_CHARS:]

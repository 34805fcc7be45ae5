"""Runs `docllm agent rehearsal-llm`: opens its socket, and ends it on a signal."""

import argparse
import asyncio
import re
import select
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from subprocess import PIPE
from typing import IO

import uvloop

from docllm.agent.llm.rehearsal import faults
from docllm.agent.llm.rehearsal.provider_limits import ProviderLimits
from docllm.agent.llm.rehearsal.service import CallRecord, Service
from docllm.agent.llm.rehearsal.wire import Connection
from docllm.agent.process import child_process
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.quota import ChargeRule, QuotaLimits

_NUMBER = r"([0-9]++(?:\.[0-9]++)?|\.[0-9]++)"
_RANGE = re.compile(rf"{_NUMBER}(?:-{_NUMBER})?")
_BACKLOG = 4096


_START_S = 30.0


def serve(options: argparse.Namespace, _argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; print the base URL first. Return the exit code."""
    try:
        dialed, latency_s = faults.parse(options.faults), _latency(options.latency)
    except ConfigError as wrong:
        sys.stderr.write(f"error: {wrong}\n")
        return wrong.exit_code
    if options.child:
        child_process.follow()
    try:
        return _run(options, dialed, latency_s)
    except OSError as error:
        sys.stderr.write(
            f"error: the rehearsal LLM cannot start: {error.strerror or error}; "
            "choose another --port, --host or --log\n"
        )
        return ConfigError.exit_code


def _run(options: argparse.Namespace, dialed: faults.Faults, latency_s: tuple[float, float]) -> int:
    with ExitStack() as stack:
        log = stack.enter_context(options.log.open("ab", buffering=0)) if options.log else None
        clock = SystemClock()
        service = Service(
            record=CallRecord(clock=clock, log=log),
            dialed=dialed,
            latency_s=latency_s,
            seed=options.seed,
            limits=_limits(options, clock),
            shows_limits=not options.no_limit_headers,
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(service, options.host, options.port))


def _limits(options: argparse.Namespace, clock: SystemClock) -> ProviderLimits | None:
    limits = QuotaLimits(
        rpm=options.rpm,
        tpm=options.tpm,
        itpm=options.itpm,
        otpm=options.otpm,
        in_flight=options.in_flight,
        charge=ChargeRule(options.charge),
    )
    if not limits.given:
        return None
    return ProviderLimits(limits=limits, window_s=options.limit_window, clock=clock)


def _latency(text: str) -> tuple[float, float]:
    match = _RANGE.fullmatch(text)
    low, high = (float(match[1]), float(match[2] or match[1])) if match else (1.0, 0.0)
    if low > high:
        raise ConfigError(
            f"latency {text!r}: write seconds, for example 0.2, or from-to, for example 0.1-2"
        )
    return low, high


async def _serve(service: Service, host: str, port: int) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    connections: set[Connection] = set()
    server = await loop.create_server(
        lambda: Connection(plan=service.plan, open_connections=connections),
        host,
        port,
        backlog=_BACKLOG,
        reuse_address=True,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    shown = f"[{host}]" if ":" in host else host  # an IPv6 address
    sys.stdout.write(f"http://{shown}:{server.sockets[0].getsockname()[1]}/v1\n")
    sys.stdout.flush()
    await stop.wait()
    server.close()
    for connection in list(connections):
        connection.abort()
    return 0


@contextmanager
def rehearsal_child(options: str) -> Iterator[str]:
    """Start the server, yield its base URL, end it.

    Raises ConfigError when the server does not start.
    """
    with child_process.start(
        child_process.program("rehearsal-llm", "--child", *_split(options)), stdout=PIPE
    ) as child:
        try:
            yield _address(child.stdout)
        finally:
            child.terminate()


def _split(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError:
        raise ConfigError("--rehearsal-options has a quote that is not closed") from None


def _address(output: IO[bytes] | None) -> str:
    """Return the first line that the server prints.

    This blocks, so it is called before anything else runs.
    """
    line = (
        output.readline()
        if output is not None and select.select([output], [], [], _START_S)[0]
        else b""
    )
    if not line.startswith(b"http"):
        raise ConfigError(
            "the rehearsal LLM did not start; check --rehearsal-options, or try: "
            "docllm agent rehearsal-llm"
        )
    return line.decode().strip()

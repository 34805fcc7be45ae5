"""Compares the cost of an LLM call on pyreqwest and aiohttp: `python -m bench.llm_clients`.

Each client runs in a process of its own, against the rehearsal LLM, behind the port `LLM`, so
either could be the agent's client. CPU is user and system time of the client's process per call,
without start-up.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop

from docllm.agent.llm.client import ChatClient
from docllm.agent.ports import LLM, Call, CallFailed, Reply
from docllm.agent.ports.llm import MAX_REPLY_BYTES
from docllm.schemas.task.failures import ErrorClass

ROOT = Path(__file__).parents[1]
SERVER = (
    "from docllm.agent.cli.parser import main; import sys; main(['rehearsal-llm', *sys.argv[1:]])"
)
PROMPT = "Summarize: " + "The harvest of this year costs more than the last one. " * 36


class AiohttpClient:
    """The port `LLM` on aiohttp, as the agent would use it."""

    def __init__(self, base_url: str) -> None:
        self._url = f"{base_url}/chat/completions"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), auto_decompress=True
        )

    async def complete(self, call: Call) -> Reply | CallFailed:
        """Make the call."""
        headers = {"Content-Type": "application/json", "X-Client-Request-Id": call.request_id}
        limits = aiohttp.ClientTimeout(total=call.timeout_s, sock_connect=10)
        try:
            async with self._session.post(
                self._url, data=call.body, headers=headers, timeout=limits, allow_redirects=False
            ) as response:
                body = await self._read(response)
                lower = {name.lower(): value for name, value in response.headers.items()}
                return (
                    Reply(response.status, lower, body)
                    if body is not None
                    else CallFailed(ErrorClass.REPLY_TOO_LARGE, "")
                )
        except aiohttp.ClientConnectorError as error:
            return CallFailed(ErrorClass.NETWORK, str(error))
        except (aiohttp.ClientError, TimeoutError) as error:
            return CallFailed(ErrorClass.AMBIGUOUS, str(error))

    async def _read(self, response: aiohttp.ClientResponse) -> bytes | None:
        pieces, size = [], 0
        async for piece in response.content.iter_any():
            pieces.append(piece)
            size += len(piece)
            if size > MAX_REPLY_BYTES:
                return None
        return b"".join(pieces)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


def cpu_s() -> float:
    """Return the CPU time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(llm: LLM, calls: int, in_flight: int) -> dict[str, float]:
    """Make the calls; return CPU per call, calls per second and memory.

    CPU is in ms, the memory of this process in MB.
    """
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": PROMPT}]})
    numbers = iter(range(calls))

    async def slot() -> None:
        for number in numbers:
            reply = await llm.complete(Call(body, f"bench/{number}#1", 60))
            if not isinstance(reply, Reply) or reply.status != 200:  # noqa: PLR2004 - success
                raise RuntimeError(f"the call ended as {reply!r:.200}")

    await llm.complete(Call(body, "bench/warm#1", 60))
    began_s, used_s = time.perf_counter(), cpu_s()
    await asyncio.gather(*(slot() for _ in range(in_flight)))
    used_s, took_s = cpu_s() - used_s, time.perf_counter() - began_s
    await llm.close()
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu_ms": 1000 * used_s / calls, "per_s": calls / took_s, "memory_mb": memory_mb}


async def one(name: str, url: str, calls: int, in_flight: int) -> dict[str, float]:
    """Measure one client in this process."""
    llm: LLM = ChatClient(base_url=url, api_key=None) if name == "pyreqwest" else AiohttpClient(url)
    return await measure(llm, calls, in_flight)


@contextmanager
def server(latency_s: float) -> Iterator[str]:
    """Run a rehearsal LLM and yield its base URL."""
    command = [sys.executable, "-c", SERVER, "--latency", str(latency_s)]
    with subprocess.Popen(  # noqa: S603 - our own program
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        yield child.stdout.readline().strip() if child.stdout else ""
        child.terminate()


def in_child(name: str, url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one client in a fresh process."""
    numbers = ["--calls", str(options.calls), "--in-flight", str(options.in_flight)]
    command = [sys.executable, "-m", "bench.llm_clients", "--one", name, "--url", url, *numbers]
    # Our own program.
    found = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)  # noqa: S603
    return dict(json.loads(found.stdout))


def main(argv: Sequence[str]) -> int:
    """Compare the two clients and print a table."""
    parser = argparse.ArgumentParser("python -m bench.llm_clients", description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--in-flight", type=int, default=1000)
    parser.add_argument("--latency", type=float, default=0.5, help="of the server, in seconds")
    parser.add_argument("--one", choices=["pyreqwest", "aiohttp"], help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            sys.stdout.write(
                json.dumps(
                    runner.run(one(options.one, options.url, options.calls, options.in_flight))
                )
            )
        return 0
    with server(options.latency) as url:
        rows = {name: in_child(name, url, options) for name in ("pyreqwest", "aiohttp")}
    base = rows["pyreqwest"]["cpu_ms"]
    sys.stdout.write(
        f"{'client':<12}{'CPU ms/call':>12}{'ratio':>8}{'calls/s':>10}{'memory MB':>11}\n"
    )
    for name, row in rows.items():
        cpu = f"{row['cpu_ms']:>12.3f}{row['cpu_ms'] / base:>8.2f}"
        sys.stdout.write(f"{name:<12}{cpu}{row['per_s']:>10.0f}{row['memory_mb']:>11.0f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

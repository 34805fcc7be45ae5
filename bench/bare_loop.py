"""The least that a task can cost here: `python -m bench.bare_loop URL FILE IN_FLIGHT`.

A loop on the agent's interpreter, event loop and HTTP client parses each line of FILE, posts its
body and reads the reply. It keeps nothing, and nothing survives its end.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import orjson
import uvloop
from pyreqwest.client import Client

from docllm.schemas.clients.http import connected


def main(url: str, file: str, in_flight: str) -> None:
    """Make all calls; print CPU a call, of the loop's thread and of the process, and the rate."""
    lines = Path(file).read_bytes().splitlines()
    began_s, used_s, thread_s = time.perf_counter(), time.process_time(), time.thread_time()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(url, iter(lines), int(in_flight)))
    figures = {
        "thread_ms": 1000 * (time.thread_time() - thread_s) / len(lines),
        "cpu_ms": 1000 * (time.process_time() - used_s) / len(lines),
        "per_s": len(lines) / (time.perf_counter() - began_s),
    }
    sys.stdout.write(json.dumps(figures))


async def _run(url: str, lines: Iterator[bytes], in_flight: int) -> None:
    address = f"{url}/chat/completions"
    client = connected(address, timedelta(seconds=10))
    await asyncio.gather(*(_slot(client, address, lines) for _ in range(in_flight)))
    await client.close()


async def _slot(client: Client, address: str, lines: Iterator[bytes]) -> None:
    for line in lines:
        task = orjson.loads(line)
        prompt = task["prompt"].replace("{document}", task["input"]["text"])
        messages = [{"role": "user", "content": prompt}]
        body = orjson.dumps({"model": "rehearsal", "messages": messages, **task.get("params", {})})
        request = client.post(address).header("Content-Type", "application/json")
        response = await request.body_bytes(body).build().send()
        if not orjson.loads(bytes(await response.bytes()))["choices"][0]["message"]["content"]:
            raise RuntimeError(f"task {task['id']} has no answer")


if __name__ == "__main__":
    main(*sys.argv[1:])

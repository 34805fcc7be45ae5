"""A batch consumer of FastStream: `python peer_faststream.py BOOTSTRAP TOPIC URL`.

It calls the LLM for all records of a batch at once and publishes their answers before it commits.
After each batch it prints when it began and ended, and how many records it had.
"""

import asyncio
import sys
import time
from typing import Any

import orjson
import uvloop
from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker
from pyreqwest.client import Client, ClientBuilder

BATCH = 256


def main(bootstrap: str, topic: str, url: str) -> None:
    """Consume until it is killed."""
    broker = KafkaBroker(bootstrap, logger=None)
    client = ClientBuilder().build()

    @broker.subscriber(
        topic,
        group_id=topic,
        batch=True,
        max_records=BATCH,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
    )
    async def run(lines: list[dict[str, Any]]) -> None:
        began_s = time.time()
        calls = (ask(client, f"{url}/chat/completions", line) for line in lines)
        await broker.publish_batch(*await asyncio.gather(*calls), topic=f"{topic}-results")
        sys.stdout.write(f"{began_s} {time.time()} {len(lines)}\n")
        sys.stdout.flush()

    uvloop.run(FastStream(broker).run(log_level=50))


async def ask(client: Client, address: str, line: dict[str, Any]) -> bytes:
    """Call the LLM for one line; return its result."""
    prompt = line["prompt"].replace("{document}", line["input"]["text"])
    messages = [{"role": "user", "content": prompt}]
    body = orjson.dumps({"model": "rehearsal", "messages": messages, **line.get("params", {})})
    request = client.post(address).header("Content-Type", "application/json").body_bytes(body)
    reply = orjson.loads(bytes(await (await request.build().send()).bytes()))
    return orjson.dumps({"id": line["id"], "result": reply["choices"][0]["message"]["content"]})


if __name__ == "__main__":
    main(*sys.argv[1:])

"""`docllm serve` as a program beside agents, asked by curl, on both kinds of parts."""

import signal
import subprocess
from typing import Any

import orjson

from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.installations import repeated_on_embedded
from tests.integration.support.programs import Program, until

TOKEN = "t0ken-of-this-test"  # noqa: S105 - of this test


def started(deployment: Deployment, *options: str, **environ: str) -> tuple[Program, str]:
    """Start a server on a free port; return it and the address of its doors."""
    listen = ("serve", "--group", deployment.group, "--listen", "127.0.0.1:0")
    program = deployment.start("producer", *listen, *options, **environ)
    until(lambda: "/v1" in program.err or not program.running, "the server to listen")
    assert program.running, program.err
    url = next(word for word in program.err.split() if word.endswith("/v1"))
    return program, url.removesuffix("/v1")


def curl(url: str, *options: str) -> bytes:
    """Return what curl prints."""
    return subprocess.run(
        ["curl", "--silent", "--show-error", *options, url], capture_output=True, check=True
    ).stdout


@repeated_on_embedded
def test_tasks_are_posted_run_and_read(deployment: Deployment) -> None:
    """The README's five lines: post, look, read; the results are those of an export."""
    deployment.llm("--latency", "0", "--faults", "400=0.1")
    program, url = started(deployment, DOCLLM_HTTP_TOKEN=TOKEN)
    path = deployment.write_lines([*map(task_line, range(60)), {"id": "bad"}], "posted")
    token = ("--header", f"Authorization: Bearer {TOKEN}")
    post = ("--data-binary", f"@{path}", *token)

    answer = orjson.loads(curl(f"{url}/v1/tasks?batch=posted&close=true", *post))
    deployment.expect("posted", (f"t{number}" for number in range(60)))
    again = orjson.loads(curl(f"{url}/v1/tasks?batch=posted&close=true", *post))
    waiting = orjson.loads(curl(f"{url}/v1/tasks/posted/t7", *token))
    deployment.until_done()

    assert (answer["loaded"], answer["twins"], len(answer["rejected"])) == (60, 0, 1)
    assert answer["rejected"][0]["line"] == 61
    assert (again["loaded"], again["twins"]) == (0, 60)
    assert waiting["state"] == "pending"
    exported = deployment.producer("export", "--batch", "posted").encode()
    assert curl(f"{url}/v1/batches/posted/results", *token) == exported
    lines = {line["id"]: line for line in map(orjson.loads, exported.splitlines())}
    task: dict[str, Any] = orjson.loads(curl(f"{url}/v1/tasks/posted/t7", *token))
    assert task == lines["t7"] | {"state": lines["t7"]["status"]}
    batch = orjson.loads(curl(f"{url}/v1/batches/posted", *token))
    counts = deployment.ledger.counts()
    assert (batch["done"], batch["counts"]["dead"]) == (True, counts["dead"])
    assert counts["dead"]
    assert orjson.loads(curl(f"{url}/v1/batches/posted"))["error"]["code"] == "invalid_api_key"
    deployment.producer("wait", "--batch", "posted")
    program.signal(signal.SIGTERM)
    assert program.wait() == 0
    assert TOKEN not in program.err


def test_requests_that_run_are_answered_before_it_ends(embedded: Deployment) -> None:
    """SIGTERM takes no accepted request away."""
    program, url = started(embedded)
    path = embedded.write_lines(map(task_line, range(3000)))
    post = subprocess.Popen(
        ["curl", "--silent", "--data-binary", f"@{path}", f"{url}/v1/tasks?batch=many"],
        stdout=subprocess.PIPE,
    )
    until(lambda: embedded.ledger.loaded("many"), "the first tasks")

    program.signal(signal.SIGTERM)

    assert program.wait() == 0
    assert orjson.loads(post.communicate()[0])["loaded"] == 3000

"""`docllm serve` as a program beside agents, asked by curl and by OpenAI's own client."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.installations import repeated_on_embedded
from tests.integration.support.programs import PATIENCE_S, Program, until
from tests.integration.support.readers import readers
from tests.integration.versions.test_installed import SHELL

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


OPENAI = """
import json, sys, time
import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2])
with open(sys.argv[3], "rb") as lines:
    file = client.files.create(file=lines, purpose="batch")
assert client.files.retrieve(file.id) == file
assert client.files.content(file.id).read() == open(sys.argv[3], "rb").read()
assert [each.id for each in client.files.list()] == [file.id]
first = client.batches.create(
    input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="1h"
)
while client.batches.retrieve(first.id).status == "validating":
    time.sleep(0.1)
first = client.batches.cancel(first.id)
batch = client.batches.create(
    input_file_id=file.id,
    endpoint="/v1/chat/completions",
    completion_window="24h",
    metadata={"by": "test"},
)
assert [each.id for each in client.batches.list(limit=1)] == [batch.id, first.id]
print(batch.id, flush=True)
while batch.status in {"validating", "in_progress", "finalizing"}:
    time.sleep(0.2)
    batch = client.batches.retrieve(batch.id)
output = client.files.content(batch.output_file_id).text
error = client.files.content(batch.error_file_id).text
assert client.files.retrieve(batch.output_file_id).bytes == len(output.encode())
assert client.files.delete(file.id).deleted
try:
    client.files.retrieve(file.id)
except openai.NotFoundError as missing:
    assert missing.code == "not_found"
try:
    openai.OpenAI(base_url=sys.argv[1], api_key="wrong").files.list()
except openai.AuthenticationError as refused:
    assert refused.code == "invalid_api_key"
json.dump(
    {
        "status": batch.status,
        "counts": batch.request_counts.to_dict(),
        "metadata": batch.metadata,
        "output": output,
        "error": error,
        "first": first.status,
    },
    sys.stdout,
)
"""


@repeated_on_embedded
def test_openais_own_client_runs_a_batch(
    deployment: Deployment, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Unchanged but for its address: upload, batch, wait, output and error file, cancel, delete."""
    deployment.llm("--latency", "0", "--faults", "400=0.2")
    program, url = started(deployment, DOCLLM_HTTP_TOKEN=TOKEN)
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"".join(map(request_line, range(40))))

    client = subprocess.Popen(
        [readers(tmp_path_factory), "-c", OPENAI, f"{url}/openai/v1", TOKEN, path],
        env=SHELL | {"HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert client.stdout is not None
    name = f"openai-{client.stdout.readline().strip().decode()}"
    agent = deployment.agent()
    answer, err = client.communicate(timeout=PATIENCE_S)

    assert client.returncode == 0, err.decode()
    run = orjson.loads(answer)
    output, error = (
        {line["custom_id"]: line for line in map(orjson.loads, run[kind].splitlines())}
        for kind in ("output", "error")
    )
    assert (run["status"], run["metadata"]) == ("completed", {"by": "test"})
    assert run["first"] == "cancelled"
    assert run["counts"] == {"total": 40, "completed": len(output), "failed": len(error)}
    assert output
    assert error
    assert output.keys() | error.keys() == {f"r{number}" for number in range(40)}
    assert {line["response"]["status_code"] for line in output.values()} == {200}
    assert {line["response"]["status_code"] for line in error.values()} == {400}
    exported = deployment.producer("export", "--batch", name, "--format", "openai")
    assert sorted(exported.splitlines()) == sorted(f"{run['output']}{run['error']}".splitlines())
    for each in (agent, program):
        each.signal(signal.SIGTERM)
        assert each.wait() == 0


def request_line(number: int) -> bytes:
    """Return a line of an input file of OpenAI's batch API."""
    body = {"model": "rehearsal", "messages": [{"role": "user", "content": f"Text {number}."}]}
    line = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions"}
    return orjson.dumps(line | {"body": body}, option=orjson.OPT_APPEND_NEWLINE)

"""The demo's stories, as a person sees them."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.integration.support.programs import environment, until

DOCUMENTS = len(list(Path(os.__file__).parent.glob("*.py")))
LAST = re.compile(
    r"(\d+) tasks: (\d+) succeeded(?:, (\d+) dead \(replay: .*?\))?, "
    r"(\d+) calls? repeated because (.*), (\d+) lost"
)


def demo(folder: Path, *options: str) -> "subprocess.Popen[str]":
    """Start the demo in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "docllm", "demo", *options],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(folder: Path, *options: str) -> tuple[int, int, str]:
    """Run a demo to its end, and check its last line's figures by its results and the LLM's log.

    Returns how many tasks are dead, how many calls were repeated, and why.
    """
    with demo(folder, *options) as running:
        out, err = running.communicate(timeout=400)
    assert running.returncode == 0, out + err
    last = LAST.fullmatch(out.splitlines()[-1])
    assert last is not None, out
    documents, succeeded, died, repeated, because, lost = last.groups()
    folder /= "docllm-demo"
    results = (folder / "results.jsonl").read_bytes().splitlines()
    states = [orjson.loads(line)["status"] for line in results]
    starts = [
        event["id"].partition("#")[0]
        for event in map(orjson.loads, (folder / "calls.jsonl").read_bytes().splitlines())
        if event["event"] == "start"
    ]
    dead = states.count("dead")
    assert int(documents) == DOCUMENTS + dead
    assert int(succeeded) == states.count("succeeded") == DOCUMENTS
    assert int(died or 0) == dead
    assert int(repeated) == len(starts) - len(set(starts))
    assert lost == "0"
    return dead, int(repeated), because


@pytest.mark.parametrize(
    ("story", "dead", "why"),
    [
        ("outage", 0, "the provider failed"),
        ("poison", 1, "agents were killed"),
        ("stop", 0, "an agent was stopped"),
    ],
)
def test_a_story_ends_with_what_became_of_all_documents(
    tmp_path: Path, story: str, dead: int, why: str
) -> None:
    """The figures are those of the results and of the LLM's log."""
    died, repeated, because = told(tmp_path, "--story", story)

    assert (died, because) == (dead, why)
    assert (repeated > 0) == (story != "stop")


def test_an_interrupted_demo_leaves_no_program_behind(tmp_path: Path) -> None:
    """Its agents end with it, and it can begin again; then one of them is killed as it is told."""
    with demo(tmp_path) as running:
        log = tmp_path / "docllm-demo" / "agent-1.log"
        until(lambda: log.exists() and "agent 1 started" in log.read_text(), "the agents")
        processes = re.findall(r"started, process (\d+)", log.read_text())
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (130, "")
    until(lambda: not any(Path(f"/proc/{number}").exists() for number in processes), "their ends")

    dead, repeated, because = told(tmp_path)

    assert (dead, because) == (1, "an agent was killed")
    assert repeated > 0

"""Handlers in processes of their own: whatever ends one costs its own task alone."""

import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.integration.support.deployment import BATCH, Deployment
from tests.integration.support.programs import until

MODULE = """
import ctypes, os, signal, subprocess, sys, threading, time

hoard = []
own = []


def fork_bomb():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        if os.fork() == 0:
            time.sleep(60)


def leak():
    while True:
        hoard.append(bytearray(8 << 20))
        time.sleep(0.01)


def ignore():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(300)


def spin():
    while True:
        pass


def orphan():
    subprocess.Popen(["sleep", "300.25"])
    os._exit(3)


def close_all():
    os.closerange(3, 100)
    time.sleep(300)


ENDS = {
    "abort": os.abort,
    "segfault": lambda: ctypes.string_at(0),
    "sys.exit": lambda: sys.exit(0),
    "os._exit": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "leak": leak,
    "at once": lambda: bytearray(1 << 42),
    "fork": fork_bomb,
    "ignore": ignore,
    "spin": spin,
    "orphan": orphan,
    "close": close_all,
}


def handle(context):
    kind = context.task.key.partition("/")[0]
    print("printed by a handler")
    messages = [{"role": "user", "content": context.document()}]
    answer = context.complete({"model": context.model, "messages": messages})
    if kind in ENDS:
        context.log.info("about to end")
        ENDS[kind]()
    own.append(kind)
    return {"chars": len(answer.text), "pid": os.getpid()}


async def handle_async(context):
    messages = [{"role": "user", "content": await context.document()}]
    return await context.complete({"messages": messages, "model": context.model})
"""
SETTINGS = """
[retry]
tiers = ["1s", "2s"]
max_attempts = 2

[types.fragile]
handler = "fragile:handle"
run = "process"
memory_mb = 200
time_s = 8

[types.async]
handler = "fragile:handle_async"
run = "process"
"""
KINDS = ("abort", "segfault", "sys.exit", "os._exit", "kill", "leak", "at once", "fork",
         "ignore", "spin", "orphan", "close")  # fmt: skip


def configured(deployment: Deployment) -> None:
    deployment.llm("--latency", "0")
    (deployment.folder / "fragile.py").write_text(MODULE)
    (deployment.folder / "docllm.toml").write_text(SETTINGS)
    if deployment.kafka:
        deployment.producer("topics", "apply")


def exported(deployment: Deployment) -> dict[str, dict[str, Any]]:
    lines = deployment.producer("export", "--batch", BATCH).splitlines()
    return {line["id"]: line for line in map(orjson.loads, lines)}


def attempts(key: str) -> int:
    """Return how often a bad task is tried; what computes until it is ended shows it once."""
    return 1 if key == "spin" else 2


def load(deployment: Deployment, *keys: str, task_type: str = "fragile") -> None:
    lines = [
        {"id": key, "type": task_type, "input": {"text": "x"}, "max_attempts": attempts(key)}
        for key in keys
    ]
    deployment.producer("load", str(deployment.write_lines(lines)))


def test_the_end_of_a_process_costs_its_own_task_alone(embedded: Deployment) -> None:
    """Each way to end is that task's counted failure with its reason; the agent goes on."""
    configured(embedded)
    good = [f"good/{number}" for number in range(30)]
    load(embedded, *good[:10], *KINDS, *good[10:])

    (agent,) = embedded.until_done("--slots", "4")

    ended = exported(embedded)
    assert {key for key in ended if ended[key]["status"] == "succeeded"} == set(good)
    assert all(ended[key]["attempts"] == 1 for key in good)
    reasons = {key: ended[key]["error"]["message"] for key in KINDS}
    assert {key: ended[key]["error"]["code"] for key in KINDS} == dict.fromkeys(KINDS, "HANDLER")
    assert {key: ended[key]["attempts"] for key in KINDS} == {key: attempts(key) for key in KINDS}
    assert reasons["abort"] == "its process ended by SIGABRT"
    assert reasons["segfault"] == "its process ended by SIGSEGV"
    assert reasons["sys.exit"] == "SystemExit: 0"
    assert reasons["os._exit"].startswith("its process ended with exit code 0; ")
    assert reasons["kill"].startswith("its process ended by SIGKILL")
    assert "more than the 200 of memory_mb of type fragile" in reasons["leak"]
    assert reasons["at once"].startswith("MemoryError")
    assert reasons["fork"].startswith("its process was ended: it ")  # processes, or their memory
    for key in ("ignore", "spin"):
        assert "ran longer than the 8 s of time_s of type fragile" in reasons[key]
    assert reasons["orphan"].startswith("its process ended with exit code 3")
    assert reasons["close"].startswith("its process was ended: it ")  # closed its link, or hung
    assert f"({BATCH}/abort): its process ended by SIGABRT" in agent.err
    assert f"({BATCH}/abort): about to end" in agent.err
    assert orphans() == []


def orphans() -> list[str]:
    """Return the processes that handlers have started and that still run."""
    commands = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return [command for command in commands if command.startswith("sleep 300.25")]


HANGS = """
import os, pathlib, signal, threading


def handle(context):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pathlib.Path(f"pid-{os.getpid()}").touch()
    threading.Event().wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_their_agent(embedded: Deployment, number: signal.Signals) -> None:
    """A drain gives their tasks back and ends them; a killed agent takes them with it."""
    configured(embedded)
    (embedded.folder / "fragile.py").write_text(HANGS)
    settings = SETTINGS.replace("time_s = 8", "") + "\n[agent]\ndrain_timeout_s = 1\n"
    (embedded.folder / "docllm.toml").write_text(
        settings.replace('"fragile:handle_async"', '"fragile:handle"')
    )
    load(embedded, "a", "b")
    agent = embedded.agent("--slots", "2")
    embedded.until(lambda: len(hung(embedded)) == 2, "both handlers hang")

    agent.signal(number)

    assert agent.wait() == (0 if number == signal.SIGTERM else -number)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in hung(embedded)), "the end")
    if number == signal.SIGTERM:
        assert embedded.ledger.counts()["pending"] == 2


def hung(deployment: Deployment) -> list[str]:
    """Return the numbers of the processes whose handlers hang."""
    return [path.name.partition("-")[2] for path in deployment.folder.glob("pid-*")]


def test_async_functions_run_in_processes_too(on_kafka: Deployment) -> None:
    """An async function calls through the agent; an answer is stored as the provider sent it."""
    configured(on_kafka)
    load(on_kafka, *map(str, range(20)), task_type="async")

    on_kafka.until_done("--slots", "4")

    assert on_kafka.ledger.counts()["succeeded"] == 20
    ended = exported(on_kafka)
    assert all(
        line["tokens_out"] > 0 and isinstance(line["result"], str) for line in ended.values()
    )

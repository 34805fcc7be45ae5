"""SIGTERM and SIGINT: running calls are settled, the rest is left to other agents.

A second signal hurries the drain, a third ends the process.
"""

import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from docllm.schemas.task.states import Status
from tests.faults import skew
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import Program, environment
from tests.servers import DatabaseServer

SLOTS = 10


def working(deployment: Deployment, latency: str) -> Program:
    """Return an agent whose slots all have running calls."""
    llm = deployment.llm("--latency", latency)
    deployment.load(60)
    agent = deployment.agent("--slots", str(SLOTS))
    deployment.until(
        lambda: sum(call.end_s is None for call in llm.calls()) == SLOTS, "calls in every slot"
    )
    return agent


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_drain_finishes_running_calls(deployment: Deployment, number: signal.Signals) -> None:
    """After one signal every running call is settled, no claim is left, and the exit code is 0.

    Another agent does the rest, without a second call.
    """
    agent = working(deployment, "2")

    agent.signal(number)

    assert agent.wait() == 0, agent.tail()
    counts = deployment.ledger.counts()
    assert counts["succeeded"] >= SLOTS
    assert counts["processing"] == 0
    assert all(row.stopped_at is not None for row in deployment.ledger.agents())
    deployment.until_done("--slots", "60")
    run = deployment.evidence()
    assert len(run.calls) == 60
    assert checker.violations(run) == []


def test_drain_ends_at_its_time_limit(embedded: Deployment) -> None:
    """Calls that outlast `drain_timeout_s` are ended; their tasks are released uncounted."""
    (embedded.folder / "docllm.toml").write_text("[agent]\ndrain_timeout_s = 0.5\n")
    agent = working(embedded, "100")

    agent.signal(signal.SIGTERM)

    assert agent.wait() == 0, agent.tail()
    assert embedded.ledger.counts()["pending"] == 60
    assert checker.attempts_spent(embedded.evidence()) == []


def test_an_agent_whose_clock_is_set_back_restarts(on_kafka: Deployment) -> None:
    """After a backward clock jump the agent drains and restarts itself with new handles.

    Waits of the Kafka client would otherwise last until the old time comes again.
    """
    on_kafka.llm("--latency", "0")
    skew.jump(on_kafka.folder, 10_000)
    agent = on_kafka.agent(**skew.environ(on_kafka.folder))
    on_kafka.load(5)
    on_kafka.until_settled(5)

    skew.jump(on_kafka.folder, 0)
    on_kafka.until(lambda: agent.err.count("agent: Kafka ") == 2, "the agent to start anew")

    on_kafka.load(5, "later")
    on_kafka.until_settled(10)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0, agent.tail()
    assert "the clock was set back by" in agent.err
    assert all(row.stopped_at is not None for row in on_kafka.ledger.agents())
    assert checker.violations(on_kafka.evidence()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_agent_that_has_not_begun_leaves_at_once(tmp_path: Path, number: signal.Signals) -> None:
    """A signal while the program still loads its code is exit code 0; nothing was made."""
    with subprocess.Popen(
        [sys.executable, "-m", "agent", "--rehearsal"],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
    ) as agent:
        while not caught(agent.pid, signal.SIGTERM):
            assert agent.poll() is None
        agent.send_signal(number)
        _, errors = agent.communicate(timeout=60)

    assert (agent.returncode, errors) == (0, b"")
    assert list(tmp_path.iterdir()) == []


def logged(agent: Program, words: str) -> bool:
    return words in agent.err


def caught(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = re.findall(r"^SigCgt:\s+([0-9a-f]+)", status, re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_second_signal_hurries(deployment: Deployment) -> None:
    """A second signal ends the running calls at once and releases their tasks; exit code 0."""
    agent = working(deployment, "100")

    agent.signal(signal.SIGINT)
    deployment.until(lambda: "draining" in agent.err, "the drain to begin")
    agent.signal(signal.SIGINT)

    assert agent.wait() == 0, agent.tail()
    assert deployment.ledger.counts()["pending"] == 60


def test_third_signal_ends_it(embedded: Deployment) -> None:
    """If even the hurried drain cannot end, a third signal exits with 130 and loses nothing.

    In this test the ledger is locked.
    """
    agent = working(embedded, "100")
    with closing(
        sqlite3.connect(embedded.folder / "docllm-data" / "ledger.sqlite", isolation_level=None)
    ) as lock:
        lock.execute("BEGIN IMMEDIATE")
        for words in ("draining", "hurrying"):
            agent.signal(signal.SIGTERM)
            embedded.until(partial(logged, agent, words), f"{words!r} in the log")
        agent.signal(signal.SIGTERM)

        assert agent.wait() == 130, agent.tail()
    assert embedded.ledger.counts()["processing"] == SLOTS


@pytest.mark.parametrize("command", [("agent", "--until-done"), ("agent", "reaper")])
def test_an_agent_that_meets_a_locked_ledger_says_so_and_leaves(
    embedded: Deployment, command: tuple[str, ...]
) -> None:
    """An agent that starts while another program locks the ledger names it and obeys SIGTERM."""
    embedded.llm()
    embedded.load(1)
    with closing(
        sqlite3.connect(embedded.folder / "docllm-data" / "ledger.sqlite", isolation_level=None)
    ) as lock:
        lock.execute("BEGIN IMMEDIATE")
        agent = embedded.start(*command, "--group", embedded.group)
        embedded.until(partial(logged, agent, "database is locked"), "the cause in the log")
        agent.signal(signal.SIGTERM)

        assert agent.wait() == 0, agent.tail()
    assert embedded.ledger.agents() == []


def test_drain_without_a_database_says_so(
    on_kafka: Deployment, database_server: DatabaseServer
) -> None:
    """Without a ledger a drain ends with 3, and reports that outcomes are not settled.

    The tasks run again later.
    """
    agent = working(on_kafka, "3")

    database_server.freeze()
    agent.signal(signal.SIGTERM)
    code = agent.wait()
    database_server.thaw()

    assert code == 3, agent.tail()
    assert "database does not answer" in agent.err
    on_kafka.until_done("--slots", "60")
    assert {task.status for task in on_kafka.evidence().tasks} == {Status.SUCCEEDED}


def test_a_repair_agent_leaves_without_a_database(
    on_kafka: Deployment, database_server: DatabaseServer
) -> None:
    """Without a ledger a repair agent ends with 3 as an agent does, before its time limit."""
    on_kafka.producer("topics", "apply")
    reaper = on_kafka.start("agent", "reaper", "--group", on_kafka.group)
    on_kafka.until(lambda: "reaping for group" in reaper.err, "the reaper has begun")

    database_server.freeze()
    reaper.signal(signal.SIGTERM)
    code = reaper.wait()
    database_server.thaw()

    assert code == 3, reaper.tail()
    assert "it still lists this agent as running" in reaper.err

"""`dead` and `replay`: after a failure, under kills, twice at once, and beside agents."""

import random
import signal
from time import monotonic
from typing import Any

import orjson
import pytest

from docllm.schemas.runtime.crash import VARIABLE
from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.states import Status
from tests.integration.support import checker
from tests.integration.support.deployment import BATCH, Deployment, seeded, task_line
from tests.integration.support.installations import repeated_on_embedded
from tests.integration.support.programs import Program, pause

TASKS = 2500  # more than one transaction stores
KILLS = 20
POINTS = (
    "replay.page_stored:1",
    "replay.stored:1",
    "replay.page_applied:2",
    "replay.page_published:2",
    "replay.page_applied:1",
)
BAD = (
    "--latency",
    "0",
    "--faults",
    "413=1",
)  # of a 400 a dozen would die: their guard holds the others back


def crash_at(point: str) -> dict[str, Any]:
    """Return the variable that kills a program at a crash point."""
    return {VARIABLE: point}


def died(deployment: Deployment, count: int, *options: str) -> None:
    """Load tasks and let them die of a failure that is over afterwards."""
    llm = deployment.llm(*BAD)
    deployment.load(count)
    deployment.until_done("--slots", "200", *options)
    llm.dial()
    assert deployment.ledger.counts()["dead"] == count


def replay(deployment: Deployment, *options: str, code: int = 0) -> str:
    return deployment.producer("replay", *options, code=code)


@pytest.mark.proof
def test_killed_replay_replays_each_task_once(deployment: Deployment) -> None:
    """A replay killed at every step and at twenty random moments replays each task once.

    It is started again after each kill.
    """
    chance = seeded()
    died(deployment, TASKS)
    command = (
        "producer",
        "replay",
        "--all",
        "--yes",
        "--rate",
        "100/s",
        "--group",
        deployment.group,
    )
    hit = [
        point
        for point in POINTS
        if deployment.run(*command, **crash_at(point)).code == -signal.SIGKILL
    ]
    left = [_dead(deployment)]
    for kill in range(KILLS):
        _kill(deployment, deployment.start(*command), chance, writing=kill % 2 == 1)
        left.append(_dead(deployment))
    output = replay(deployment, "--all", "--yes")
    again = replay(deployment, "--all", "--yes")

    print(f"killed at {hit}; left dead by {KILLS} kills: {left}; then: {output}")  # noqa: T201 - figures
    assert hit == list(POINTS)
    assert len(set(left)) > KILLS // 4
    assert "0 tasks" in again
    assert {(task.status, task.replays, task.fence) for task in deployment.ledger.tasks()} == {
        (Status.PENDING, 1, 1)
    }

    deployment.until_done("--slots", "200")

    run = deployment.evidence()
    assert len(run.calls) == 2 * TASKS
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}
    assert checker.violations(run) == []


def _kill(deployment: Deployment, victim: Program, chance: random.Random, *, writing: bool) -> None:
    """Kill a replay at a random moment, or, with `writing`, shortly after it wrote something."""
    before = _dead(deployment)
    if writing:
        deployment.until(
            lambda: not victim.running or _dead(deployment) < before, "the replay to write"
        )
    pause(chance.uniform(0, 0.3 if writing else 2.0))
    victim.end()


def _dead(deployment: Deployment) -> int:
    return deployment.ledger.counts()["dead"]


@repeated_on_embedded
def test_agents_apply_a_replay_whose_command_was_killed(deployment: Deployment) -> None:
    """The command dies as soon as the replay is stored; two agents replay each task once."""
    died(deployment, 400)
    command = ("producer", "replay", "--all", "--yes", "--group", deployment.group)
    killed = deployment.run(*command, **crash_at("replay.stored"))
    assert (killed.code, _dead(deployment)) == (-signal.SIGKILL, 400)
    (unfinished,) = deployment.status()["replays"]
    assert (unfinished["done"], unfinished["total"]) == (0, 400)

    agents = [deployment.agent("--slots", "20") for _ in range(2)]
    deployment.until(
        lambda: deployment.ledger.counts()["succeeded"] == 400, "every task to succeed"
    )
    deployment.until(lambda: deployment.status()["replays"] == [], "the replay to end")
    for agent in agents:
        agent.signal(signal.SIGTERM)
    assert [agent.wait() for agent in agents] == [0, 0]

    run = deployment.evidence()
    assert {(task.status, task.replays) for task in run.tasks} == {(Status.SUCCEEDED, 1)}
    assert len(run.calls) == 800
    assert "400 wait again of 400; ended" in replay(deployment, "--list")
    assert checker.violations(run) == []


def test_an_agent_that_waits_for_the_end_applies_stored_replays(embedded: Deployment) -> None:
    """With `--until-done` it would find only final tasks; the replay is work that is left."""
    died(embedded, 20)
    command = ("producer", "replay", "--all", "--yes")
    assert embedded.run(*command, **crash_at("replay.stored")).code == -signal.SIGKILL

    embedded.until_done()

    assert embedded.ledger.counts()["succeeded"] == 20


def test_the_command_follows_agents_and_may_be_interrupted(embedded: Deployment) -> None:
    """Ctrl-C ends the command alone: the agent goes on, at the rate of the replay."""
    died(embedded, 40)
    agent = embedded.agent("--slots", "5")
    embedded.until(
        lambda: "alive" in {row["state"] for row in embedded.status()["agents"]},
        "the agent to register",
    )
    following = embedded.start("producer", "replay", "--all", "--yes", "--rate", "5/s")
    embedded.until(lambda: _dead(embedded) < 40, "the replay to begin")
    following.signal(signal.SIGINT)

    assert following.wait() == 130
    assert "goes on without this command" in following.err
    assert "this command applies" not in following.err
    assert _dead(embedded) > 0
    assert "of 40 left" in replay(embedded, "--resume")
    assert _dead(embedded) == 0
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0


@repeated_on_embedded
def test_two_replays_at_once_share_the_work(deployment: Deployment) -> None:
    """Two replays at once both succeed, and every task is replayed once."""
    died(deployment, 600)
    command = ("producer", "replay", "--all", "--yes", "--group", deployment.group)

    both = [deployment.start(*command) for _ in range(2)]

    assert [program.wait() for program in both] == [0, 0], [program.tail() for program in both]
    assert {(task.status, task.replays) for task in deployment.ledger.tasks()} == {
        (Status.PENDING, 1)
    }
    (batch,) = deployment.status()["batches"]
    assert (batch["counts"]["pending"], batch["counts"]["dead"], batch["failures"]) == (600, 0, {})
    deployment.until_done("--slots", "200")
    assert checker.violations(deployment.evidence()) == []


def test_replay_in_the_middle_of_a_running_group(deployment: Deployment) -> None:
    """Repeated replays beside agents whose tasks keep dying lose and double nothing."""
    llm = deployment.llm("--latency", "0.05", "--faults", "400=0.4")
    deployment.load(800)
    agents = [deployment.agent("--slots", "20") for _ in range(2)]
    deployment.until(lambda: deployment.ledger.counts()["dead"] > 50, "some tasks to die")
    for _ in range(5):
        replay(deployment, "--all", "--yes", "--cap", "50")
    llm.dial()
    deployment.until(lambda: not deployment.ledger.open(), "every task to end")
    replay(deployment, "--all", "--yes", "--cap", "50")
    deployment.until(
        lambda: deployment.ledger.counts()["succeeded"] == 800, "every task to succeed"
    )
    for agent in agents:
        agent.signal(signal.SIGTERM)
    assert [agent.wait() for agent in agents] == [0, 0]
    deployment.until_done()

    run = deployment.evidence()
    print(f"{sum(task.replays for task in run.tasks)} replays")  # noqa: T201 - figures
    assert sum(task.replays for task in run.tasks) > 50
    assert checker.violations(run) == []


@repeated_on_embedded
def test_cancelled_batch_comes_back_at_once(deployment: Deployment) -> None:
    """Agents that have just read the cancel run the replayed tasks all the same.

    No task is cancelled a second time.
    """
    llm = deployment.llm("--latency", "0.3")
    deployment.load(400)
    agent = deployment.agent("--slots", "3")
    deployment.until_settled(5)
    deployment.producer("cancel", "--batch", BATCH)
    deployment.until(lambda: not deployment.ledger.open(), "the cancel to be over")
    cancelled = deployment.ledger.counts()["cancelled"]

    replay(deployment, "--cancelled", "--batch", BATCH, "--yes")
    llm.dial()
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    deployment.until_done("--slots", "100")

    run = deployment.evidence()
    assert cancelled > 100
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}
    assert sum(task.replays for task in run.tasks) == cancelled
    assert checker.violations(run) == []


def test_quarantined_record_becomes_a_task(deployment: Deployment) -> None:
    """A foreign line on the wrong topic is shown, replayed and run.

    Garbage stays, and is reported with exit code 1.
    """
    llm = deployment.llm("--latency", "0")
    deployment.producer("topics", "apply")
    topic = deployment.topics.name("tasks")
    deployment.bus.write(
        [
            Outgoing(topic, b"k", orjson.dumps(task_line(1)), []),
            Outgoing(topic, None, b"garbage", []),
        ]
    )
    deployment.agent("--slots", "5")
    deployment.until(
        lambda: len(deployment.ledger.quarantined()) == 2, "the records to be set aside"
    )

    (group,) = orjson.loads(deployment.producer("dead", "list", "--json"))["groups"]
    planned = replay(deployment, "--disposition", "undecodable", "--dry-run")
    output = replay(deployment, "--disposition", "undecodable", "--yes", code=1)
    deployment.expect(f"{deployment.group}-direct", ["t1"])
    deployment.until_settled(1)

    assert (group["disposition"], group["count"], group["tasks"]) == ("undecodable", 2, 0)
    assert "2 records" in planned
    assert "1 is a task now, 1 record is still no task" in output
    assert len(llm.calls()) == 1
    (left,) = orjson.loads(deployment.producer("dead", "list", "--json"))["groups"]
    assert left["count"] == 1
    for agent in deployment.agents:
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 0
    assert checker.violations(deployment.evidence()) == []


def test_rate_is_kept(embedded: Deployment) -> None:
    """`--rate 20/s` limits the rate."""
    died(embedded, 61)
    began_s = monotonic()

    replay(embedded, "--all", "--yes", "--rate", "20/s")

    assert monotonic() - began_s >= 3.0
    assert embedded.ledger.counts()["pending"] == 61


def test_an_interrupted_replay_names_the_command_that_continues_it(embedded: Deployment) -> None:
    """Ctrl-C leaves a run that `--list` shows and `--resume` finishes."""
    died(embedded, 100)
    slow = embedded.start("producer", "replay", "--all", "--yes", "--rate", "5/s")
    embedded.until(lambda: embedded.ledger.counts()["pending"] > 0, "the replay to begin")
    slow.signal(signal.SIGINT)

    assert slow.wait() == 130
    assert "replay --resume" in slow.err
    assert "unfinished" in replay(embedded, "--list")
    assert "of 100 left" in replay(embedded, "--resume")
    assert embedded.ledger.counts()["pending"] == 100
    assert "100 wait again of 100; ended" in replay(embedded, "--list")
    assert "no replay is unfinished" in replay(embedded, "--resume")


HOSTILE = [
    "'",
    '"; DROP TABLE task; --',
    "%",
    "_",
    "100%",
    "\\",
    "ü",
    "\U0001f600",
    "quarantine:1",
    "--all",
    "a b",
]


def test_hostile_ids_mean_themselves(embedded: Deployment) -> None:
    """Each hostile id selects, shows and replays its own task, and no other."""
    embedded.llm(*BAD)
    embedded.producer(
        "load", str(embedded.write_lines(task_line(0) | {"id": key} for key in HOSTILE))
    )
    embedded.until_done()
    for key in HOSTILE:
        shown = orjson.loads(
            embedded.run("producer", "dead", "show", "--json", "--batch", BATCH, "--", key).out
        )
        assert (shown["key"], shown["status"]) == (key, "dead")

        replay(embedded, f"--id={key}", "--batch", BATCH, "--yes")

        assert embedded.ledger.counts()["dead"] == len(HOSTILE) - HOSTILE.index(key) - 1


def test_usage_errors_have_their_exit_code_and_advice(embedded: Deployment) -> None:
    """Each usage error has its exit code and advice.

    Examples are no selection, nobody to ask, unknown names, and options that exclude each other.
    """
    died(embedded, 3)

    def result_of(*options: str) -> tuple[int, str]:
        done = embedded.run("producer", *options)
        return done.code, done.err + done.out

    for options, code, words in [
        (["replay"], 2, "or --all"),
        (["replay", "--limit", "3"], 2, "or --all"),
        (["replay", "--all"], 2, "--yes"),
        (["replay", "--id", "nobody", "--yes"], 1, "dead list"),
        (["replay", "--id", "quarantine:9", "--yes"], 1, "dead list"),
        (["replay", "--batch", "nowhere", "--yes"], 2, "nowhere"),
        (["replay", "--all", "--resume"], 2, "takes no other options"),
        (["replay", "--all", "--force", "--yes"], 2, "--from-topic"),
        (
            ["replay", "--cancelled", "--fingerprint", "abcdef", "--all", "--yes"],
            2,
            "--fingerprint",
        ),
        (["replay", "--disposition", "sad", "--yes"], 2, "'sad' is not a choice"),
        (["replay", "--since", "then", "--yes"], 2, "is not a time"),
        (["replay", "--from-topic", "nowhere", "--yes"], 2, "no topic nowhere"),
        (["replay", "--from-topic", "--yes"], 2, "of this ledger"),
        (["dead"], 2, "ACTION"),
        (["dead", "show"], 2, "ID"),
        (["dead", "show", "--json", "nobody"], 1, "docllm status"),
        (["dead", "list", "--fingerprint", "12"], 2, "6 hexadecimal digits"),
        (["replay", "--all", "--dry-run"], 0, "nothing is changed"),
        (["replay", "--id", "t1", "--tenant", "nobody", "--yes"], 0, "is dead"),
    ]:
        answer = result_of(*options)
        assert (answer[0], words in answer[1]) == (code, True), (options, answer)
    assert embedded.ledger.counts()["dead"] == 3

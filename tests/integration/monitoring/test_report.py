"""What `status` says of an agent is true: its slots, calls, routes, lag and settings."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from docllm.schemas.runtime.clock import SystemClock
from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.installations import repeated_on_embedded

SLOTS = 4
TASKS = 40
BLOCKS = """
import time


async def work(context):
    time.sleep(25)
    return {"done": True}
"""
Settings = Callable[[Deployment, str], None]


def reports(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the reports of all living agents."""
    return [
        agent["report"]
        for agent in deployment.status()["agents"]
        if agent["state"] == "alive" and agent["report"] is not None
    ]


@repeated_on_embedded
def test_a_report_tells_what_an_agent_does(deployment: Deployment) -> None:
    """While calls are slow, the report has them; when all is done, nothing is left in it."""
    llm = deployment.llm("--latency", "600")
    deployment.load(TASKS)
    bulk = deployment.write_lines([task_line(number) for number in range(3)], "bulk")
    deployment.producer("load", str(bulk), "--priority", "0")
    agent = deployment.agent("--slots", str(SLOTS))

    deployment.until(
        lambda: any(
            report["oldest_call"] and report["oldest_call"]["running_s"] > 10
            for report in reports(deployment)
        ),
        "the report of a slow call",
    )
    status = deployment.status()
    (shown,) = status["agents"]
    report = shown["report"]
    assert (shown["slots"], shown["running"]) == (SLOTS, SLOTS)
    assert report["busy"] == {"default": SLOTS}
    assert report["lag"] == {"tasks": TASKS, "tasks.bulk": 3}
    assert report["oldest_call"]["key"] in {f"t{number}" for number in range(TASKS)}
    assert report["oldest_call"]["batch"] in {"tasks", "bulk"}
    assert report["oldest_call"]["route"] == "default"
    assert report["loop_age_s"] < 5
    assert (report["reasons"], status["reasons"]) == ([], [])
    text = deployment.producer("status")
    assert f"{SLOTS} of {SLOTS} slots, oldest call " in text

    llm.end()
    deployment.llm("--latency", "0")
    agent.end()
    second = deployment.agent()
    deployment.until(
        lambda: (
            any(not report["lag"] and not report["running"] for report in reports(deployment))
            and deployment.ledger.counts()["succeeded"] == TASKS + 3
        ),
        "an idle agent without lag",
    )
    assert all(report["oldest_call"] is None for report in reports(deployment)[-1:])
    assert second.code is None


def test_a_report_says_which_route_is_closed_and_since_when(
    embedded: Deployment, settings: Settings
) -> None:
    """A route that stopped has the class of its failures; the other one is open."""
    bad = embedded.llm("--latency", "0.05", "--faults", "503=1")
    embedded.llm("--latency", "0.05")
    settings(embedded, f'[routes.bad]\nbase_url = "{bad.url}"\n')
    lines = [task_line(number, **({"model": "bad"} if number % 2 else {})) for number in range(100)]
    embedded.producer("load", str(embedded.write_lines(lines)))
    began_s = SystemClock().utc_s()
    embedded.agent("--slots", "8")

    def closed() -> list[dict[str, Any]]:
        return [
            route
            for report in reports(embedded)
            for route in report["routes"]
            if route["state"] == "stopped"
        ]

    embedded.until(closed, "the report of the stopped route")

    (route,) = closed()
    assert (route["name"], route["error_class"], route["allowed"]) == ("bad", "SERVER", 1)
    assert (
        began_s - 1 <= datetime.fromisoformat(route["since"]).timestamp() <= SystemClock().utc_s()
    )
    (report,) = reports(embedded)
    assert [(reason["code"], reason["name"]) for reason in report["reasons"]] == [
        ("route_stopped", "bad")
    ]


def test_agents_with_other_settings_are_named(embedded: Deployment) -> None:
    """Two agents that were started with the same settings report the same digest."""
    embedded.llm("--latency", "0")
    embedded.load(1)
    for slots in ("4", "4", "5"):
        embedded.agent("--slots", slots)

    seen: list[dict[str, Any]] = []

    def all_report() -> bool:
        seen[:] = reports(embedded)
        return len(seen) == 3

    embedded.until(all_report, "the reports of three agents")

    digests = [report["settings"] for report in seen]
    assert sorted(map(digests.count, digests)) == [1, 2, 2]
    embedded.until(
        lambda: "has other settings than" in embedded.producer("status"), "status to name it"
    )


def test_a_handler_that_blocks_its_agent_is_seen(embedded: Deployment, settings: Settings) -> None:
    """The heartbeat goes on, and its report grows old; later the agent works again."""
    embedded.llm("--latency", "0")
    (embedded.folder / "slow.py").write_text(BLOCKS)
    settings(embedded, '[types.slow]\nhandler = "slow:work"\n')
    line = {"id": "t0", "type": "slow", "input": {"text": "x"}}
    embedded.producer("load", str(embedded.write_lines([line])))
    agent = embedded.agent("--until-done")

    embedded.until(
        lambda: any("event loop of " in reason for reason in embedded.status()["reasons"]),
        "status to say that the loop is blocked",
    )

    assert agent.wait() == 0, agent.tail()
    assert embedded.ledger.counts()["succeeded"] == 1
    assert embedded.status()["reasons"] == []

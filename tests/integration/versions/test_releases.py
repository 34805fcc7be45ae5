"""Agents of two releases work beside each other, and `status` shows them side by side."""

from collections import Counter

import orjson

from tests.integration.support.deployment import BATCH, Deployment

TASKS = 60


def test_two_releases_stand_side_by_side(embedded: Deployment) -> None:
    """Each attempt counts for the release of its agent; the sums are those of the rows."""
    embedded.llm("--latency", "0.05", "--faults", "413=0.5")
    new = {"DOCLLM_AGENT_RELEASE": "new-2", **embedded.environ}
    embedded.llm("--latency", "0.05")
    embedded.load(TASKS)
    agents = [
        embedded.agent("--until-done", "--slots", "2", **more)
        for more in (new, {"DOCLLM_AGENT_RELEASE": "old-1"})
    ]
    assert [agent.wait() for agent in agents] == [0, 0], agents[0].tail()

    status = orjson.loads(embedded.producer("status", "--json"))
    screen = embedded.producer("status", "--once")

    found = {release["name"]: release for release in status["releases"]}
    assert found.keys() == {"new-2", "old-1"}
    failed = Counter({name: release["total"]["failed"] for name, release in found.items()})
    assert failed["old-1"] == 0 < failed["new-2"] == embedded.ledger.counts()["dead"]
    assert sum(release["total"]["attempts"] for release in found.values()) == TASKS
    assert all(release["total"] == release["last_hour"] for release in found.values())
    assert status["reasons"] == []  # a minute is too short to blame a release
    for name, release in found.items():
        rate = release["last_hour"]["failure_rate"]
        attempts = release["last_hour"]["attempts"]
        assert f"release {name}: in the last hour {attempts} attempts, {rate:.1%} failed" in screen
    dead = next(task.name for task in embedded.ledger.tasks() if task.death)
    key = dead.removeprefix(f"{BATCH}/")
    story = orjson.loads(embedded.producer("dead", "show", key, "--json"))
    assert [attempt["release"] for attempt in story["history"]] == ["new-2"]


def test_a_label_that_is_none_is_refused(embedded: Deployment) -> None:
    """The message names the setting and the form."""
    embedded.llm()
    done = embedded.run("agent", "--until-done", DOCLLM_AGENT_RELEASE="a b\x1b[2J")

    assert done.code == 2
    assert "DOCLLM_AGENT_RELEASE" in done.err
    assert "1 to 64 letters" in done.err
    assert "\x1b" not in done.err

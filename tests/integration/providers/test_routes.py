"""Routes in whole programs: a failing one delays no other, a person resumes a parked one."""

import signal
from collections.abc import Callable

from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.installations import repeated_on_embedded

Settings = Callable[[Deployment, str], None]


@repeated_on_embedded
def test_a_parked_route_is_resumed_by_a_person(deployment: Deployment) -> None:
    """After a resume, every agent takes calls within seconds, and no attempt was counted.

    The bill was paid. By itself, an agent would have tried much later.
    """
    llm = deployment.llm("--latency", "0.05", "--faults", "402=1")
    deployment.load(300)
    agents = [deployment.agent("--until-done", "--slots", "8") for _ in range(2)]
    deployment.until(
        lambda: all("default is parked" in agent.err for agent in agents),
        "both agents to park their route",
    )
    deployment.until(
        lambda: any(
            "route default (rehearsal at " in why and ") is parked" in why
            for why in deployment.status()["reasons"]
        ),
        "status to say so",
    )
    assert "[route_parked]" in agents[0].err
    assert [wait["code"] for wait in deployment.status()["waits"]] == ["route_parked"]
    called = len(llm.calls())

    llm.dial()
    done = deployment.run("agent", "resume", "default", "--group", deployment.group)

    assert (done.code, done.out.startswith("route default of group")) == (0, True)
    for agent in agents:
        assert agent.wait() == 0, agent.tail()
        assert "route default takes calls again" in agent.err
    assert called <= 2 * 8 + 2
    assert {task.attempt for task in deployment.ledger.tasks()} == {0}
    assert deployment.ledger.counts()["succeeded"] == 300


def test_a_refused_key_is_corrected_and_the_agents_restarted(embedded: Deployment) -> None:
    """Log and `status` tell what to do, and nothing was counted.

    A restart is enough, as for a key of the environment: no `resume` is needed.
    """
    llm = embedded.llm("--latency", "0.05", "--faults", "401=1")
    embedded.load(20)
    agent = embedded.agent()
    embedded.until(lambda: "default is parked" in agent.err, "the agent to park its route")
    embedded.until(
        lambda: any(
            "is parked, correct its key, model or address" in why
            for why in embedded.status()["reasons"]
        ),
        "status to tell what to do",
    )
    assert "if you corrected it in the environment, restart them" in agent.err
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0, agent.tail()

    llm.dial()
    embedded.until_done()

    assert {task.attempt for task in embedded.ledger.tasks()} == {0}
    assert embedded.ledger.counts()["succeeded"] == 20


def test_a_failing_route_delays_no_other(embedded: Deployment, settings: Settings) -> None:
    """While one provider is away, the other's tasks are done; afterwards its own are.

    No task is dead.
    """
    bad = embedded.llm("--latency", "0.05", "--faults", "503=1")
    embedded.llm("--latency", "0.05")
    settings(embedded, f'[routes.bad]\nbase_url = "{bad.url}"\n')
    lines = [task_line(number, **({"model": "bad"} if number % 2 else {})) for number in range(400)]
    embedded.producer("load", str(embedded.write_lines(lines)))
    agent = embedded.agent("--until-done", "--slots", "16")
    embedded.until_settled(200)
    assert "route bad stopped" in agent.err
    assert "route default stopped" not in agent.err
    assert len(bad.calls()) <= 16 + 20

    bad.dial()

    assert agent.wait() == 0, agent.tail()
    assert embedded.ledger.counts()["succeeded"] == 400
    assert len(bad.calls()) <= 200 + 36

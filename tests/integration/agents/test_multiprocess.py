"""Two and more agents in one group: shared partitions, take-over after a kill.

No task is settled twice.
"""

from docllm.schemas.runtime.clock import SystemClock
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment

LATENCY_S = "1"


def test_three_agents_share_the_work(deployment: Deployment) -> None:
    """Each of three agents settles a part of the tasks, and no task is called twice."""
    llm = deployment.llm("--latency", "0.6")
    deployment.load(450)
    agents = [deployment.agent("--until-done", "--slots", "10") for _ in range(3)]

    assert [agent.wait() for agent in agents] == [0, 0, 0]

    shares = [deployment.ledger.settled_by(agent.pid) for agent in agents]
    print(f"shares: {shares}")  # noqa: T201 - figures
    assert all(shares)
    assert len(llm.calls()) == 450
    assert checker.violations(deployment.evidence()) == []


def test_survivor_takes_over_from_a_killed_agent(deployment: Deployment) -> None:
    """When one of two agents is killed, the other ends all tasks, including begun ones."""
    llm = deployment.llm("--latency", LATENCY_S)
    deployment.load(400)
    agents = [deployment.agent("--until-done", "--slots", "20") for _ in range(2)]
    deployment.until(
        lambda: all(deployment.ledger.settled_by(agent.pid) for agent in agents),
        "both agents to work",
    )

    def killed_in_a_call() -> bool:
        claimed, now_s = deployment.ledger.claims_of(agents[0].pid), SystemClock().now_s()
        begun = {
            call.name
            for call in llm.calls()
            if call.end_s is None and now_s - call.start_s < float(LATENCY_S) / 2
        }
        return not begun.isdisjoint(claimed) and deployment.kill(agents[0])

    deployment.until(killed_in_a_call, "the victim to have begun calls, and to be killed")

    assert agents[1].wait() == 0, agents[1].tail()
    run = deployment.evidence()
    assert len(run.calls) > 400
    assert checker.violations(run) == []

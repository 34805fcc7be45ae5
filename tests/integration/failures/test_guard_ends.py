"""Guards in whole programs: a wrong parameter kills tens of tasks; a batch with bad tasks ends."""

from collections import Counter
from collections.abc import Callable

from docllm.schemas.task.states import Status
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment, task_line

Settings = Callable[[Deployment, str], None]
IMPOSSIBLE = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 5, "maximum": 1}},
    "required": ["n"],
}


def ends(deployment: Deployment) -> dict[str, Counter[str]]:
    """Return how many tasks of each batch are in which state."""
    statuses: dict[str, Counter[str]] = {}
    for task in deployment.ledger.tasks():
        statuses.setdefault(task.name.partition("/")[0], Counter())[Status(task.status).name] += 1
    return statuses


def test_a_wrong_parameter_costs_a_dozen_tasks_of_its_batch(
    embedded: Deployment, settings: Settings
) -> None:
    """Of 300 refused tasks 13 die, with 64 slots too, and a healthy batch beside them is done.

    Once the tasks are repaired and loaded again, the rest run.
    """
    strict = embedded.llm("--latency", "0.05", "--faults", "400=1")
    embedded.llm("--latency", "0.05")
    settings(embedded, f'[routes.strict]\nbase_url = "{strict.url}"\n')
    wrong = embedded.write_lines(
        (task_line(number, model="strict") for number in range(300)), "wrong"
    )
    embedded.producer("load", str(wrong))
    embedded.expect("wrong", (f"t{number}" for number in range(300)))
    embedded.load(200, "healthy")
    agents = [embedded.agent("--until-done") for _ in range(2)]

    embedded.until(lambda: ends(embedded)["healthy"]["SUCCEEDED"] == 200, "the healthy batch")
    embedded.until(lambda: ends(embedded)["wrong"]["DEAD"] == 13, "the first look, of one task")
    embedded.until(lambda: ends(embedded)["wrong"]["RETRYING"] == 287, "the others to be held back")
    embedded.until(
        lambda: [guard["look_size"] for guard in embedded.status()["guards"]] == [2],
        "the end of the first look",
    )
    status, listed = embedded.status(), embedded.producer("guard", "list")
    reason = (
        "batch wrong, type document, route strict: all 12 tasks that ended were refused for "
        "the same reason"
    )
    assert any(
        why.startswith(f"guard of {reason}") and "with up to 2 tasks" in why
        for why in status["reasons"]
    )
    assert [
        (guard["cause"], guard["look_size"], guard["looking"]) for guard in status["guards"]
    ] == [("bad_request", 2, False)]
    assert reason in listed
    for agent in agents:
        assert agent.running
        assert (
            "the guard of batch wrong, type document, route strict is raised; its tasks "
            "wait: all 12 tasks" in agent.err
        )
    embedded.until(
        lambda: all("route strict: next look in" in agent.err for agent in agents),
        "each agent's own line of it",
    )

    strict.dial()
    embedded.producer("load", str(wrong))

    for agent in agents:
        assert agent.wait() == 0, agent.tail()
    assert ends(embedded)["wrong"] == {"DEAD": 13, "SUCCEEDED": 287}
    assert checker.violations(embedded.evidence()) == []


def test_a_batch_with_bad_tasks_ends_by_itself(embedded: Deployment, settings: Settings) -> None:
    """Half of 30 tasks get no good answer: the guard looks, doubles, and `--until-done` ends."""
    embedded.use_tiers("1s", "2s", max_attempts=2)
    embedded.llm("--latency", "0.02")
    settings(embedded, "[guard]\nprobe_s = 2\n")
    lines = [
        task_line(number, **({"schema": IMPOSSIBLE} if number < 15 else {})) for number in range(30)
    ]
    embedded.producer("load", str(embedded.write_lines(lines)))
    embedded.expect("tasks", (f"t{number}" for number in range(30)))

    (agent,) = embedded.until_done()

    assert ends(embedded) == {"tasks": {"DEAD": 15, "SUCCEEDED": 15}}
    assert {row.disposition for row in embedded.ledger.dead_letters()} == {"exhausted"}
    assert (
        "the guard of batch tasks, type document, route default is raised; its tasks wait"
        in agent.err
    )
    assert "1 task of it tried now" in agent.err
    assert checker.violations(embedded.evidence()) == []

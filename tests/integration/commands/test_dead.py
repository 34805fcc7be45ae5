"""`docllm dead`: the ids of dead tasks alone, and what to type next."""

import orjson

from tests.integration.support.deployment import Deployment, task_line


def test_ids_of_dead_tasks_go_into_a_pipe(embedded: Deployment) -> None:
    """One id on each line and nothing else; a selection and a limit hold as for the groups."""
    embedded.llm("--latency", "0", "--faults", "400=1")
    embedded.load(3)
    embedded.load(2, "other")
    embedded.until_done()

    everything = embedded.run("producer", "dead", "list", "--ids")
    one_batch = embedded.producer("dead", "list", "--ids", "--batch", "tasks", "--limit", "2")
    none = embedded.run("producer", "dead", "list", "--ids", "--disposition", "expired")

    assert sorted(everything.out.splitlines()) == ["t0", "t0", "t1", "t1", "t2"]
    assert everything.err == ""
    assert one_batch == "t0\nt1\n"
    assert (none.code, none.out) == (0, "")
    assert embedded.run("producer", "dead", "list", "--ids", "--json").code == 2


def test_lists_say_what_to_type_next(embedded: Deployment) -> None:
    """On stderr, and each command does what it says; JSON has none of it."""
    embedded.llm("--latency", "0", "--faults", "400=1")
    embedded.load(1)
    embedded.until_done()

    listed = embedded.run("producer", "dead", "list")
    lines = listed.err.splitlines()
    show, replay = (line.split()[1:] for line in lines if line.startswith("  docllm "))

    assert embedded.run("producer", *show).out.startswith("task t0 of batch tasks: dead")
    assert "to replay: 1 task" in embedded.run("producer", *replay).out
    assert embedded.run("producer", "dead", "list", "--json").err == ""
    embedded.producer("replay", "--all", "--yes")
    assert "docllm dead list" in embedded.run("producer", "replay", "--list").err


def test_status_says_which_agent_has_which_task(embedded: Deployment) -> None:
    """At most three of each agent, the oldest first, with the time of the claim."""
    llm = embedded.llm("--latency", "600")
    embedded.write_lines([task_line(number) for number in range(5)])
    embedded.producer("load", str(embedded.folder / "tasks.jsonl"))
    agent = embedded.agent("--slots", "5")
    embedded.until(lambda: len(llm.calls()) == 5, "five running calls")

    (running,) = orjson.loads(embedded.producer("status", "--json"))["agents"]
    shown = embedded.producer("status")

    tasks = running["tasks"]
    assert len(tasks) == 3
    assert {task["batch"] for task in tasks} == {"tasks"}
    assert {task["id"] for task in tasks} < {f"t{number}" for number in range(5)}
    assert all(task["claimed_at"] for task in tasks)
    assert f"tasks/{tasks[0]['id']} since " in shown
    agent.end()

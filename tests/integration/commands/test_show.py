"""`docllm show`: what became of a task, in each state that it may be in."""

import orjson

from tests.integration.support.deployment import Deployment, task_line


def test_a_task_that_succeeded_is_shown_with_its_answer(embedded: Deployment) -> None:
    """A person sees input, cost and answer of any task; `--full` cuts nothing."""
    embedded.llm("--latency", "0")
    text = "A long document. " * 100
    embedded.write_lines([task_line(0, input={"text": text})])
    embedded.producer("load", str(embedded.folder / "tasks.jsonl"))
    embedded.until_done()

    shown = embedded.producer("show", "t0").splitlines()
    full = embedded.producer("show", "t0", "--full")

    assert shown[0] == "task t0 of batch tasks: succeeded"
    (answer,) = (line for line in shown if line.startswith("  answer, "))
    assert "A long document." in answer
    assert any(line.endswith("... (--full shows all of it)") for line in shown)
    assert text in full
    assert "--full shows" not in full


def test_a_dead_task_is_shown_with_the_command_that_runs_it_again(embedded: Deployment) -> None:
    """The command follows the page, on stderr."""
    embedded.llm("--latency", "0", "--faults", "400=1")
    embedded.load(1)
    embedded.until_done()

    done = embedded.run("producer", "show", "t0")

    assert "dead letter: permanent, BAD_REQUEST" in done.out
    assert "the model said" not in done.out
    assert done.err == "run it again: docllm replay --batch tasks --id t0 --group docllm\n"


def test_what_the_model_said_is_shown_where_it_was_refused(embedded: Deployment) -> None:
    """Each attempt has the answer that did not fit its schema, until the task is erased."""
    embedded.use_tiers("1s", max_attempts=2)
    embedded.llm("--latency", "0")
    embedded.load(1, "before")  # the route works, so the guard lets the task die
    embedded.until_done()
    embedded.llm("--latency", "0", "--faults", "wrong_schema=1")
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    path = embedded.write_lines([task_line(1, schema=schema)])
    embedded.producer("load", str(path))
    embedded.until_done()

    shown = embedded.producer("show", "t1").splitlines()
    history = orjson.loads(embedded.producer("show", "t1", "--json"))["history"]

    assert [attempt["error_class"] for attempt in history] == ["BAD_OUTPUT"] * 2
    assert all(attempt["reply"] for attempt in history)
    assert f"      the model said: {history[0]['reply']}" in shown
    embedded.producer("erase", "--id", "t1", "--yes")
    (erased,) = orjson.loads(embedded.producer("dead", "list", "--json"))["groups"]
    again = orjson.loads(embedded.producer("show", erased["example"]["id"], "--json"))
    assert [attempt["reply"] for attempt in again["history"]] == ["", ""]

"""Who goes first: lanes and tenants take turns, on whole programs."""

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median

import orjson

from docllm.schemas.task.record.envelope import Outgoing
from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.installations import repeated_on_embedded
from tests.integration.support.programs import RehearsalLLM, most_at_once

SLOTS = 4
PRIORITIES = {"urgent": 9, "normal": 5, "bulk": 0}


def load(
    deployment: Deployment, batch: str, count: int, priority: int = 5, tenant: str = "default"
) -> None:
    more = {"priority": priority, "tenant": tenant}
    lines = ({**task_line(number), **more} for number in range(count))
    deployment.producer("load", str(deployment.write_lines(lines, batch)))


def batches(llm: RehearsalLLM) -> list[str]:
    """Return the batch of each call, in the order of their beginning."""
    calls = sorted(llm.calls(), key=lambda call: call.start_s)
    return [call.name.partition("/")[0] for call in calls]


def middle(order: Sequence[str], batch: str) -> float:
    return median(place for place, name in enumerate(order) if name == batch)


@repeated_on_embedded
def test_urgent_tasks_go_first_and_none_starves(deployment: Deployment) -> None:
    """Tasks that were loaded last run first if they are urgent, and bulk tasks run all along.

    A lane may be read a second after the others: only few calls are made meanwhile.
    """
    llm = deployment.llm("--latency", "0.5")
    for batch, count in (("bulk", 200), ("normal", 60), ("urgent", 60)):
        load(deployment, batch, count, PRIORITIES[batch])
    assert deployment.ledger.carriers("pending") == {
        "tasks.bulk": 200,
        "tasks": 60,
        "tasks.urgent": 60,
    }

    deployment.until_done("--slots", str(SLOTS))

    order = batches(llm)
    assert Counter(order) == {"bulk": 200, "normal": 60, "urgent": 60}
    assert middle(order, "urgent") < middle(order, "normal") < middle(order, "bulk")
    assert "bulk" in order[: order.index("urgent") + 70], "no bulk task ran beside urgent ones"
    assert deployment.ledger.counts()["succeeded"] == 320


def test_what_a_tenant_has_too_much_of_is_bulk(
    embedded: Deployment, settings: Callable[[Deployment, str], None]
) -> None:
    """A tenant's tasks beyond its overflow wait in the bulk lane; a task of another does not."""
    settings(embedded, "[tenant_defaults]\noverflow = 50\n")
    load(embedded, "first", 40, tenant="large")
    load(embedded, "second", 40, tenant="large")
    load(embedded, "other", 5, tenant="small")
    load(embedded, "hurry", 5, priority=9, tenant="large")

    assert embedded.ledger.carriers("pending") == {
        "tasks.bulk": 30,
        "tasks": 55,
        "tasks.urgent": 5,
    }


@repeated_on_embedded
def test_a_small_tenant_does_not_wait_behind_a_large_one(deployment: Deployment) -> None:
    """Ten tasks that are loaded behind thousands of another tenant run among the next ones."""
    llm = deployment.llm("--latency", "0.1")
    load(deployment, "large", 3000, tenant="large")
    deployment.agent("--slots", str(SLOTS))
    deployment.until_settled(20)

    load(deployment, "small", 10, tenant="small")
    before = len(llm.calls())
    deployment.until(lambda: batches(llm).count("small") == 10, "the calls of the small tenant")

    order = batches(llm)
    last = len(order) - order[::-1].index("small")
    assert last - before < 10 * SLOTS + 60, Counter(order[before:last])


def test_a_load_waits_while_too_much_is_unfinished(embedded: Deployment) -> None:
    """The load says why it waits and goes on by itself, as does the inbox."""
    embedded.llm("--latency", "0")
    load(embedded, "first", 30)
    path = embedded.write_lines(map(task_line, range(10)), "second")
    waiting = embedded.start("producer", "load", str(path), "--max-backlog", "20")
    embedded.until(
        lambda: "30 tasks of group docllm are unfinished" in waiting.err, "a word that it waits"
    )
    assert embedded.ledger.loaded("second") == 0

    embedded.until_done()

    assert waiting.wait() == 0
    assert embedded.ledger.loaded("second") == 10


def test_the_inbox_waits_while_too_much_is_unfinished(
    embedded: Deployment, settings: Callable[[Deployment, str], None]
) -> None:
    """The inbox's records stay where they are until tasks have ended; none is lost."""
    settings(embedded, "[inbox]\nmax_backlog = 20\n")
    llm = embedded.llm("--latency", "0.2")
    load(embedded, "first", 40)
    record = Outgoing(embedded.topics.name("inbox"), None, orjson.dumps(task_line(1000)), [])
    embedded.bus.write([record])

    (agent,) = embedded.until_done("--slots", "2")

    assert "the inbox: " in agent.err
    assert batches(llm).index("docllm-direct") >= 20


def openai_line(number: int) -> dict[str, object]:
    body = {"messages": [{"role": "user", "content": "Say hello"}]}
    return {
        "custom_id": f"o{number}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": body,
    }


def test_lines_that_name_no_priority_get_that_of_their_load(embedded: Deployment) -> None:
    """A later load of the batch keeps it, and a line that names one wins."""
    own = [{**task_line(number), "tenant": "bolt", "priority": 5} for number in range(20)]
    lines = [openai_line(number) for number in range(10)]
    path = embedded.write_lines([*lines, *own], "mixed")
    embedded.producer("load", str(path), "--tenant", "acme", "--priority", "8")
    assert embedded.ledger.carriers("pending") == {"tasks.urgent": 10, "tasks": 20}
    more = embedded.write_lines([openai_line(number) for number in range(10, 14)], "more")
    embedded.producer("load", str(more), "--batch", "mixed")
    assert embedded.ledger.carriers("pending") == {"tasks.urgent": 14, "tasks": 20}


def test_lines_that_name_no_tenant_keep_its_cap(
    embedded: Deployment, settings: Callable[[Deployment, str], None]
) -> None:
    """An agent knows whose an OpenAI line is as soon as it reads its record."""
    settings(embedded, "[tenants.acme]\nin_flight = 2\n")
    llm = embedded.llm("--latency", "0.5")
    embedded.agent("--slots", "16")
    load(embedded, "others", 40, tenant="bolt")
    embedded.until_settled(1)

    lines = [openai_line(number) for number in range(20)]
    embedded.producer("load", str(embedded.write_lines(lines, "ours")), "--tenant", "acme")
    embedded.until_settled(60)

    ours = [call for call in llm.calls() if call.name.startswith("ours/")]
    assert len(ours) == 20
    assert most_at_once(ours) <= 2
    assert most_at_once(llm.calls()) > 4


def test_a_tenant_that_no_line_can_have_is_refused(embedded: Deployment) -> None:
    """The error names the option and the rule."""
    path = str(embedded.write_lines([openai_line(1)]))

    wrong = embedded.run("producer", "load", path, "--tenant", "a b")
    beyond = embedded.run("producer", "load", path, "--priority", "10")

    assert (wrong.code, "'a b' is not a tenant" in wrong.err) == (2, True), wrong
    assert (beyond.code, "from 0 to 9" in beyond.err) == (2, True), beyond

"""Deaths of a working agent: between claim, call, settle, publish, commit, and in its drain."""

import signal
from collections.abc import Mapping
from pathlib import Path

import orjson
from sqlalchemy import text

from docllm.schemas.task.record.topics import RESULTS
from docllm.schemas.task.states import Status
from tests.faults.installation import Installation
from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.programs import Program

TASKS = 60
SLOTS = ("--slots", "6")
PARENTS, CHILDREN = 30, 2
STAGES = f"""
async def order(context):
    messages = [{{"role": "user", "content": "hi"}}]
    await context.complete({{"model": context.model, "messages": messages}})
    for number in range({CHILDREN}):
        await context.follow({{"id": f"{{context.task.key}}/{{number}}", "prompt": "Summarize."}})


async def split(context):
    await order(context)
    await context.follow({{"id": f"{{context.task.key}}/sum", "type": "sum"}}, after="children")


async def add(context):
    ends = [child.status async for child in context.children()]
    assert ends == ["succeeded"] * {CHILDREN}, ends
    messages = [{{"role": "user", "content": "add"}}]
    await context.complete({{"model": context.model, "messages": messages}})
"""
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


def beginning(installation: Installation) -> None:
    """When an agent dies before its first call, the next one takes over its claims, if any."""
    llm = installation.deployment.llm("--latency", "0.1")
    installation.deployment.load(TASKS)
    installation.crash_agent("lease.registered")
    installation.crash_agent("claim.fence_claimed", *SLOTS)
    installation.crash_agent("claim.claimed", *SLOTS)
    assert not llm.calls()
    installation.recover()
    assert len(llm.calls()) == TASKS


def calling(installation: Installation) -> None:
    """An answer that was not settled is lost with its agent; only such a task is called again."""
    llm = installation.deployment.llm("--latency", "0.1")
    installation.deployment.load(TASKS)
    installation.crash_agent("call.sending", *SLOTS, most=20)
    installation.crash_agent("call.answered", *SLOTS, most=20)
    installation.recover()
    assert len(llm.calls()) > TASKS


def settling(installation: Installation) -> None:
    """What is settled and not committed is read again and not called again."""
    installation.deployment.llm("--latency", "0.1")
    installation.deployment.load(TASKS)
    installation.crash_agent("settle.committed", *SLOTS, most=3)
    assert installation.deployment.ledger.counts()["succeeded"]
    installation.crash_agent("commit.sending", *SLOTS)
    installation.recover()


def committing(installation: Installation) -> None:
    """After a commit the next agent goes on behind it."""
    installation.deployment.llm("--latency", "0.1")
    installation.deployment.load(TASKS)
    installation.crash_agent("commit.done", *SLOTS)
    assert any(position.committed for position in installation.evidence().positions)
    installation.recover()


def splitting(installation: Installation) -> None:
    """A group with rows that the database refuses is settled in parts.

    A death between two parts changes nothing for the other tasks.
    """
    installation.deployment.llm("--latency", "0.3")
    installation.deployment.load(TASKS)
    installation.write(
        text(
            _refusing(
                "MOD(NEW.task_id, 5) = 0" if installation.kafka else "NEW.task_id % 5 = 0",
                kafka=installation.kafka,
            )
        )
    )
    installation.crash_agent("settle.split", *SLOTS, most=4)
    run = installation.recover()
    assert sum(task.status == Status.DEAD for task in run.tasks) == TASKS // 5


def _refusing(condition: str, *, kafka: bool) -> str:
    if kafka:
        refuse = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'"
        return (
            "CREATE TRIGGER refuse BEFORE INSERT ON task_result FOR EACH ROW BEGIN IF "
            f"{condition} THEN {refuse}; END IF; END"
        )
    return (
        f"CREATE TRIGGER refuse BEFORE INSERT ON task_result WHEN {condition} BEGIN SELECT "
        "RAISE(ABORT, 'refused'); END"
    )


def following(installation: Installation) -> None:
    """Follow-ups are there when their parent has succeeded, each once, and a relay sends them."""
    deployment = installation.deployment
    deployment.llm("--latency", "0.1")
    (deployment.folder / "stages.py").write_text(STAGES)
    (deployment.folder / "docllm.toml").write_text('[types.parent]\nhandler = "stages:order"\n')
    parents = [f"p{number}" for number in range(PARENTS)]
    path = deployment.write_lines({"id": key, "type": "parent"} for key in parents)
    deployment.producer("load", str(path))
    children = [f"{key}/{child}" for key in parents for child in range(CHILDREN)]
    deployment.expect("tasks", [*parents, *children])
    installation.crash_agent("settle.ids_taken", *SLOTS, most=2)
    installation.crash_agent("settle.committed", *SLOTS)
    installation.judge_deaths()  # a loss that is judged later would not be forgotten
    installation.forget_losses()
    installation.crash_agent("publish.delivered", *SLOTS)
    installation.age_orders()
    run = installation.recover()
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}


def joining(installation: Installation) -> None:
    """A join runs once, although the agent dies that ends the last of its siblings."""
    deployment = installation.deployment
    llm = deployment.llm("--latency", "0.1")
    (deployment.folder / "stages.py").write_text(STAGES)
    (deployment.folder / "docllm.toml").write_text(
        '[types.parent]\nhandler = "stages:split"\n[types.sum]\nhandler = "stages:add"\n'
    )
    path = deployment.write_lines([{"id": "p", "type": "parent"}])
    deployment.producer("load", str(path))
    children = [f"p/{child}" for child in range(CHILDREN)]
    deployment.expect("tasks", ["p", *children, "p/sum"])
    installation.crash_agent("join.called_up", *SLOTS)
    installation.crash_agent("settle.committed", *SLOTS, most=CHILDREN)
    installation.age_orders()
    run = installation.recover()
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}
    sums = [call for call in llm.calls() if "p/sum" in call.name]
    assert len(sums) <= 2


def writing(installation: Installation) -> None:
    """An object that a dead agent left is no error: what is settled points to an object of its own.

    Only the calls whose answers were not settled are made again, and nothing is overwritten.
    """
    deployment = installation.deployment
    deployment.llm("--latency", "0.1")
    folder = deployment.folder / "results"
    folder.mkdir()
    deployment.environ["DOCLLM_DOCUMENT_ALLOW"] = f"file://{folder}/"
    path = deployment.write_lines(task_line(number) for number in range(TASKS))
    deployment.producer("load", str(path), "--output-uri", f"file://{folder}/")
    deployment.expect("tasks", (f"t{number}" for number in range(TASKS)))
    installation.crash_agent("output.put", *SLOTS, most=3)
    left = {file: file.read_bytes() for file in folder.iterdir()}
    assert left
    installation.crash_agent("output.settled", *SLOTS)
    installation.recover()
    results = [orjson.loads(line) for line in deployment.producer("export").splitlines()]
    assert {line["status"] for line in results} == {"succeeded"}
    assert len({line["output"] for line in results}) == TASKS
    assert {file: file.read_bytes() for file in left} == left


def copying(installation: Installation) -> None:
    """The object that a line names has the result that was settled, or is not there."""
    deployment = installation.deployment
    deployment.llm("--latency", "0.1")
    folder = deployment.folder / "results"
    folder.mkdir()
    deployment.environ["DOCLLM_DOCUMENT_ALLOW"] = f"file://{folder}/"
    path = deployment.write_lines(
        task_line(number, output_uri=f"file://{folder}/own/{number}") for number in range(TASKS)
    )
    deployment.producer("load", str(path))
    deployment.expect("tasks", (f"t{number}" for number in range(TASKS)))
    for point in ("output.put", "hook.leased", "hook.copied"):
        installation.crash_agent(point, *SLOTS)
        copied = {file.name: file.read_bytes() for file in (folder / "own").glob("[0-9]*")}
        results = {str(line["id"]): line for line in _exported(deployment)}
        for name, content in copied.items():
            assert content == _object(results[f"t{name}"]).read_bytes()
        installation.forget_losses()
    installation.recover()
    for line in _exported(deployment):
        name = str(line["id"]).removeprefix("t")
        assert (folder / "own" / name).read_bytes() == _object(line).read_bytes()


def _exported(deployment: Deployment) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in deployment.producer("export").splitlines()]


def _object(line: Mapping[str, object]) -> Path:
    return Path(str(line["output"]).removeprefix("file://"))


def publishing(installation: Installation) -> None:
    """The relay sends retries and dead letters that were not sent; others go twice at most."""
    deployment = installation.deployment
    deployment.llm("--latency", "0.1", "--faults", "400=0.2,wrong_schema=0.2")
    path = deployment.write_lines(task_line(number, schema=SCHEMA) for number in range(TASKS))
    deployment.producer("load", str(path))
    deployment.expect("tasks", (f"t{number}" for number in range(TASKS)))
    installation.crash_agent("publish.delivered", *SLOTS, most=4)
    installation.crash_agent("publish.shrunk", *SLOTS, most=4)
    installation.age_orders()
    installation.crash_reaper("relay.taken")
    installation.age_orders()
    run = installation.recover()
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED, Status.DEAD}


def streaming(installation: Installation) -> None:
    """The line of every task that has ended is on the topic of results, some of them twice."""
    deployment = installation.deployment
    with (deployment.folder / "docllm.toml").open("a") as toml:
        toml.write("[results]\ntopic = true\n")
    if installation.kafka:
        deployment.producer("topics", "apply")
    deployment.llm("--latency", "0.1")
    deployment.load(TASKS)
    for point in ("settle.committed", "publish.delivered", "publish.shrunk"):
        installation.crash_agent(point, *SLOTS, most=3)
    installation.recover()
    lines = deployment.bus.copies(deployment.topics.name(RESULTS))
    assert {(record.key or b"").decode() for record in lines} == {
        task.name.partition("/")[2] for task in deployment.ledger.tasks()
    }


def draining(installation: Installation) -> None:
    """After a cut-off drain, settled tasks stay settled and the others run again."""
    installation.deployment.llm("--latency", "3")
    installation.deployment.load(TASKS)

    def drain(agent: Program) -> None:
        installation.deployment.until(
            lambda: installation.deployment.ledger.claims_of(agent.pid), "the agent to work"
        )
        agent.signal(signal.SIGTERM)

    for step in ("group_left", "settled", "published"):
        installation.crash_agent(f"drain.{step}", *SLOTS, then=drain)
    installation.recover("--slots", str(TASKS))

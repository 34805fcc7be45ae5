"""Deaths on the failure path: in replays, in loads from the dead-letter topic, over guards."""

from dataclasses import replace

from sqlalchemy import text

from docllm.producer.replay.runs import STORED_PAGE
from docllm.schemas.ledger import tables
from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.states import Status
from tests.faults.installation import Installation
from tests.integration.support.deployment import BATCH, task_line
from tests.integration.support.installations import prepare

TASKS, FEW = 40, 5
RATE = 4  # so that a replay has ten pages
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


def replaying(installation: Installation) -> None:
    """Whoever dies over a replay, others go on, and each dead letter is replayed once."""
    deployment = installation.deployment
    llm = deployment.llm("--latency", "0", "--faults", "413=1")
    deployment.load(TASKS)
    deployment.load(STORED_PAGE, "called_off")
    deployment.producer("cancel", "--batch", "called_off")
    installation.recover()
    llm.dial()
    everything, going_on = ("--all", "--yes", "--rate", str(RATE)), ("--resume",)
    installation.crash_producer("replay.page_stored", "replay", *everything, "--cancelled")
    installation.crash_producer("replay.stored", "replay", *everything)
    installation.crash_agent("replay.page_applied", most=2)
    installation.crash_reaper("replay.page_published")
    installation.crash_producer("replay.page_applied", "replay", *going_on, most=2)
    installation.crash_producer("replay.page_published", "replay", *going_on, most=2)
    deployment.producer("replay", *going_on)
    deployment.producer("replay", *going_on)
    installation.age_orders()
    run = installation.recover()
    assert {(task.status, task.replays) for task in run.tasks} == {
        (Status.SUCCEEDED, 1),
        (Status.CANCELLED, 0),
    }


def refreshing(installation: Installation) -> None:
    """Whoever dies over new documents, a task has either its dead letter or the new document."""
    deployment = installation.deployment
    deployment.llm("--latency", "0")
    folder = deployment.folder / "repaired"
    folder.mkdir()
    files = [folder / f"{number}.txt" for number in range(FEW)]
    for file in files:
        file.write_text(f"{file.name} is broken")
    deployment.environ["DOCLLM_DOCUMENT_ROOTS"] = str(folder)
    documents = ("--documents", str(folder), "--prompt", "Summarize: {document}", "--by-uri")
    deployment.producer("load", *documents, "--batch", BATCH)
    deployment.expect(BATCH, [file.name for file in files])
    for file in files:
        file.write_text(f"{file.name} was repaired, and is longer now")
    installation.recover()
    refresh = ("--all", "--refresh-documents", "--yes", "--rate", "1")
    installation.crash_producer("replay.documents_written", "replay", *refresh)
    assert deployment.ledger.counts()["dead"] == FEW
    installation.crash_producer("replay.page_applied", "replay", "--resume")
    deployment.producer("replay", "--resume")
    installation.age_orders()
    run = installation.recover(odd=("P8 other bytes",))  # which is what a refresh is for
    assert {(task.status, task.replays) for task in run.tasks} == {(Status.SUCCEEDED, 1)}
    exported = deployment.producer("export", "--batch", BATCH)
    assert exported.count("was repaired") == FEW


def writing_back(installation: Installation) -> None:
    """Letters that come back, some as bare lines, replay their tasks once, whoever dies."""
    deployment = installation.deployment
    with (deployment.folder / "docllm.toml").open("a") as toml:
        toml.write("[inbox]\nredrive = true\n")
    llm = deployment.llm("--latency", "0", "--faults", "413=1")
    deployment.load(FEW)
    installation.recover()
    llm.dial()
    letters = deployment.bus.copies(deployment.topics.name("dlq"))
    inbox = deployment.topics.name("inbox")
    bare = [Outgoing(inbox, None, letter.value, []) for letter in letters[: FEW // 2]]
    deployment.bus.write(bare)
    installation.crash_agent("letters.lines_judged")
    for destination in ("inbox", "tasks"):
        topic = deployment.topics.name(destination)
        deployment.bus.write([replace(letter, topic=topic) for letter in letters])
        installation.crash_agent("letters.judged")
    installation.age_orders()
    run = installation.recover()
    assert {(task.status, task.replays) for task in run.tasks} == {(Status.SUCCEEDED, 1)}
    # An agent that dies at its point may have called for a task that was replayed before.
    assert len(llm.calls()) >= 2 * FEW


def loading_back(installation: Installation) -> None:
    """A new ledger gets each dead letter of the topic once, although the loading program dies."""
    deployment = installation.deployment
    llm = deployment.llm("--latency", "0", "--faults", "413=1")
    deployment.load(TASKS)
    installation.recover()
    names = [*tables.metadata.tables, "alembic_version"]
    installation.write(*(text(f"DROP TABLE {name}") for name in names))
    prepare(deployment)
    llm.dial()
    letters = ("--from-topic", deployment.topics.name("dlq"), "--yes")
    installation.crash_producer("from_topic.accepted", "replay", *letters)
    deployment.producer("replay", *letters)
    installation.age_orders()
    run = installation.recover(odd=["P8"])  # letters of the ledger that was lost
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}
    assert len(llm.calls()) == 2 * TASKS


def waiting(installation: Installation) -> None:
    """Tasks of a later time run once each then, although the agent that called them up dies."""
    deployment = installation.deployment
    llm = deployment.llm("--latency", "0")
    path = deployment.write_lines(task_line(number) for number in range(FEW))
    deployment.producer("load", str(path), "--not-before", "+1s")
    deployment.expect(BATCH, (f"t{number}" for number in range(FEW)))
    installation.crash_agent("wait.called_up")
    installation.age_orders()
    run = installation.recover()
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}
    assert len(llm.calls()) == FEW


def guarding(installation: Installation) -> None:
    """A batch that failed as a whole waits, and runs once its route works, whoever dies over it."""
    deployment = installation.deployment
    with (deployment.folder / "docllm.toml").open("a") as toml:
        toml.write("[guard]\nprobe_s = 1\n[retry]\nmax_attempts = 1\n")
    # A tier so long that what waits in it is in nobody's claim when one of them dies.
    deployment.environ["DOCLLM_RETRY_TIERS"] = "10m"
    prepare(deployment)
    llm = deployment.llm("--latency", "0", "--faults", "wrong_schema=1")
    path = deployment.write_lines(task_line(number, schema=SCHEMA) for number in range(TASKS))
    deployment.producer("load", str(path))
    deployment.expect(BATCH, (f"t{number}" for number in range(TASKS)))

    installation.crash_agent("guard.turn_taken")
    installation.crash_agent("guard.answered", then=lambda _: llm.dial())
    installation.crash_agent("guard.opened")
    installation.crash_agent("guard.called_up")
    installation.age_orders()
    run = installation.recover()
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}

"""Deaths during repairs: reaper, sweep, trim, relief, records that contradict the ledger."""

from docllm.producer.bus.embedded import topics
from docllm.producer.bus.embedded.file import BusFile
from docllm.schemas.task.record.envelope import Outgoing, Publication, encode
from tests.faults.installation import Installation
from tests.integration.support.buses import KafkaBus
from tests.integration.support.deployment import BATCH, task_line
from tests.integration.support.installations import prepare
from tests.integration.support.programs import Program
from tests.invariants.evidence import Task

TASKS = 20
SLOTS = ("--slots", "6")
COPIED, SPAN = 500, 50_000


def reaping(installation: Installation) -> None:
    """A reaper dies after it declared an agent lost or after a reset; another one does the rest."""
    deployment = installation.deployment
    deployment.llm("--latency", "0.1")
    deployment.load(TASKS)
    installation.crash_agent("claim.claimed", *SLOTS)
    claimed = deployment.ledger.counts()["processing"]
    installation.crash_reaper("reap.judged")
    assert deployment.ledger.counts()["processing"] == claimed
    installation.crash_reaper("reap.reset")
    assert deployment.ledger.counts()["processing"] == 0
    installation.recover()


def sweeping(installation: Installation) -> None:
    """Tasks whose records the bus lost come back, although sweeper and trimmer die."""
    deployment = installation.deployment
    with (deployment.folder / "docllm.toml").open("a") as toml:
        toml.write("[agent]\nsweep_slack_s = 0.5\n")
    deployment.llm("--latency", "0.01")
    for number, step in enumerate(("sweep.ordered", "trim.low_raised", "trim.trimmed")):
        batch = f"{BATCH}{number}"
        deployment.load(TASKS, batch)
        _lose_records(installation)
        if step == "sweep.ordered":
            installation.crash_reaper(step)
        elif step == "trim.trimmed" or not installation.kafka:
            installation.crash_agent(step, *SLOTS)
    installation.recover()


def compacting(installation: Installation) -> None:
    """No count is lost or doubled, although the agents that roll counts up die."""
    deployment = installation.deployment
    deployment.llm("--latency", "0")
    deployment.load(TASKS)
    deployment.until_done()
    installation.age_counts()
    before = deployment.status()["batches"]
    for point in ("compact.added", "compact.moved"):
        installation.crash_reaper(point)
        assert deployment.status()["batches"] == before
    installation.recover()


def _lose_records(installation: Installation) -> None:
    bus, topic = installation.deployment.bus, installation.deployment.topics.name("tasks")
    if isinstance(bus, KafkaBus):
        bus.delete_records(topic)
        return
    file = BusFile(installation.deployment.folder / "docllm-data" / "bus.sqlite")
    topics.trim(
        file,
        {
            (position.topic, position.number): position.high
            for position in bus.positions("nobody", topic)
        },
    )
    file.close()


def contradicting(installation: Installation) -> None:
    """A claim made by a record of another task is given back, although its agent dies first."""
    deployment = installation.deployment
    deployment.llm("--latency", "0")
    path = deployment.write_lines((task_line(number) for number in range(TASKS)), "unsent")
    installation.crash_producer("load.accepted", "load", str(path))
    installation.hold_orders()
    deployment.expect("unsent", (f"t{number}" for number in range(TASKS)))
    deployment.load(TASKS)
    ledger = deployment.status()["ledger"]
    victim = next(task for task in deployment.ledger.tasks() if task.name == "unsent/t0")

    def pretend(_: Program) -> None:
        deployment.until_settled(TASKS)  # what comes now is claimed without a question
        deployment.bus.write([_record(installation, ledger, victim, value=b"another")])

    installation.crash_agent("claim.conflicting", then=pretend)
    installation.crash_agent("quarantine.kept")
    installation.age_orders()
    run = installation.recover()
    assert len(run.quarantined) == 1


def relieving(installation: Installation) -> None:
    """A wide span that one slow task blocks is relieved, although the agent dies over it.

    The task may then have two records, and it ends once.
    """
    deployment = installation.deployment
    prepare(deployment, partitions="1")
    llm = deployment.llm("--latency", "0")
    deployment.load(COPIED, "done")
    deployment.until_done("--slots", "100")
    llm.dial("hang=1")
    deployment.load(1, "slow")
    ledger = deployment.status()["ledger"]
    records = [
        _record(installation, ledger, task)
        for task in deployment.ledger.tasks()
        if task.name.startswith("done/")
    ]
    deployment.bus.write(records * (SPAN // COPIED + 1))
    installation.crash_agent("relief.ordered")
    llm.dial()
    installation.age_orders()
    installation.recover()


def _record(
    installation: Installation, ledger: str, task: Task, value: bytes | None = None
) -> Outgoing:
    """Return a first record of a task, or with another value one that pretends to be."""
    group, (batch, key) = installation.deployment.group, task.name.split("/")
    headers = encode(Publication(ledger, group, batch, task.id, 0))
    return Outgoing(
        installation.deployment.topics.name("tasks"),
        key.encode(),
        task.value if value is None else value,
        headers,
    )

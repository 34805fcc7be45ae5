"""Deaths of the commands that delete: erase, purge, trim of dead letters."""

from tests.faults.installation import Installation
from tests.integration.support.deployment import BATCH

TASKS = 600  # more than the first page of a purge


def purging(installation: Installation) -> None:
    """The same command completes a cut-off deletion, and agents find nothing to do."""
    deployment = installation.deployment
    llm = deployment.llm("--latency", "0", "--faults", "413=1")
    deployment.load(TASKS)
    installation.recover("--slots", "200")
    erased = ("--id", "t3", "--yes")
    installation.crash_producer("erase.noted", "erase", *erased)
    installation.crash_producer("erase.page_erased", "erase", *erased)
    deployment.producer("erase", *erased)
    topic = deployment.topics.name("dlq")
    assert len(deployment.bus.copies(topic)) == TASKS
    to = deployment.folder / "archives"
    to.mkdir()
    archive = ("archive", "--batch", BATCH, "--to", str(to))
    deployment.producer(*archive)
    purge = ("purge", "--batch", BATCH, "--yes")
    installation.crash_producer("purge.marked", *purge)
    assert sum(deployment.ledger.counts().values()) == TASKS
    installation.crash_producer("purge.page_deleted", *purge)
    assert 0 < sum(deployment.ledger.counts().values()) < TASKS
    (part,) = to.glob("*/part-*")
    part.write_bytes(part.read_bytes()[::-1])
    refused = deployment.run("producer", *purge, "--group", deployment.group)
    assert refused.code == 4, refused
    assert "put the archive back" in refused.err
    assert "archive --batch" not in refused.err  # it would lack the rows that are gone
    deployment.producer(*archive, code=4)
    deployment.producer(*purge, "--unarchived")
    assert sum(deployment.ledger.counts().values()) == 0
    installation.crash_producer("dead_trim.noted", "dead", "trim", "--yes")
    assert len(deployment.bus.copies(topic)) == TASKS
    deployment.producer("dead", "trim", "--yes")
    assert deployment.bus.copies(topic) == []
    deployment.until_done()
    assert len(llm.calls()) == TASKS

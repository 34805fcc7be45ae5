"""Deaths of the commands that delete: purge."""

from tests.faults.installation import Installation
from tests.integration.deployment import BATCH

TASKS = 600  # more than the first page of a purge


def purging(installation: Installation) -> None:
    """The same command completes a cut-off purge, and agents find nothing to do."""
    deployment = installation.deployment
    llm = deployment.llm("--latency", "0")
    deployment.load(TASKS)
    installation.recover("--slots", "200")
    options = ("--batch", BATCH, "--unarchived", "--yes")
    installation.crash_producer("purge.marked", "purge", *options)
    assert sum(deployment.ledger.counts().values()) == TASKS
    installation.crash_producer("purge.page_deleted", "purge", *options)
    assert 0 < sum(deployment.ledger.counts().values()) < TASKS
    deployment.producer("purge", *options)
    assert sum(deployment.ledger.counts().values()) == 0
    deployment.until_done()
    assert len(llm.calls()) == TASKS

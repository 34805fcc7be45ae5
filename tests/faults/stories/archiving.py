"""Deaths of a command that archives a batch, between any two of its steps."""

from docllm.producer.retention.manifest import Manifest
from tests.faults.installation import Installation
from tests.integration.support.deployment import BATCH

TASKS = 20
POINTS = ("begun", "file_written", "manifest_written", "verified", "marked")


def archiving(installation: Installation) -> None:
    """Whoever dies, the next run goes on: one folder, one whole manifest, one archive."""
    deployment = installation.deployment
    deployment.llm("--latency", "0")
    deployment.load(TASKS)
    installation.recover()
    to = deployment.folder / "archives"
    to.mkdir()
    command = ("archive", "--batch", BATCH, "--to", str(to))
    for point in POINTS:
        installation.crash_producer(f"archive.{point}", *command)
    deployment.producer(*command)
    (folder,) = to.iterdir()
    manifest = Manifest.of_stored((folder / "manifest.json").read_bytes())
    assert manifest.contents()["tasks"] == TASKS
    assert {path.name for path in folder.iterdir()} == {
        "manifest.json",
        *(file.name for file in manifest.files),
    }
    installation.recover()

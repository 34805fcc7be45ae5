"""What the intake makes of the events of its source."""

from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.intake.acceptance import Intake
from docllm.agent.ports import Assigned, Partition, Recreated, Revoked, SourceFailed
from docllm.agent.process.failures import Failures
from docllm.agent.reporting.telemetry import Counts
from tests.support.intake import new_intake
from tests.support.source import FakeSource

INBOX = Partition("group.inbox", "id", 0, 1)
LIMITS = InFlightLimits()


def intake(counts: Counts | None = None) -> tuple[Intake, FakeSource, Failures]:
    source, failures = FakeSource(), Failures()
    made = new_intake(
        partitions=Partitions({INBOX.topic: source}, limits=LIMITS),
        counts=counts,
        failures=failures,
    )
    made.deliver(Assigned((INBOX,)))
    return made, source, failures


def test_an_inbox_whose_reader_ended_ends_the_agent() -> None:
    """An inbox whose reader has ended for good ends the agent; a passing problem does not."""
    inbox, _, failures = intake()

    inbox.deliver(SourceFailed("a broker is away"))
    inbox.deliver(SourceFailed("the consumer ended", fatal=True))

    assert failures.reason == "the consumer ended"


def test_a_recreated_inbox_is_reported_until_its_id_is_stored() -> None:
    """A recreated inbox is reported until its id is known.

    It used to stand still silently; its producers, and whoever waits for `--until-done`, must learn
    why.
    """
    counts = Counts()
    inbox, _, _ = intake(counts)

    inbox.deliver(Revoked((INBOX,)))
    inbox.deliver(Recreated(INBOX.topic, known=False))
    assert counts.unknown_topics == {"group.inbox"}

    inbox.deliver(Recreated(INBOX.topic, known=True))
    assert counts.unknown_topics == set()

"""The stories of crash points: which story kills a program at which points.

A story is a function of an installation. It hits each of its points and ends with a recovery.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.installation import Installation
from tests.faults.stories import (
    archiving,
    failing,
    hooking,
    isolating,
    keeping,
    locking,
    producing,
    receiving,
    repairing,
    working,
)


@dataclass(frozen=True, slots=True)
class Story:
    """A story and its crash points, separated by blanks.

    `embedded` has the points that only the embedded parts reach.
    """

    play: Callable[[Installation], None]
    points: str
    embedded: str = ""
    prepared: bool = True  # tables and topics are there when it begins

    @property
    def name(self) -> str:
        """Return the name of its function."""
        return self.play.__name__

    def points_on(self, *, kafka: bool) -> set[str]:
        """Return the points that are hit on Kafka and MariaDB, or on the embedded parts."""
        return set(self.points.split()) if kafka else set(f"{self.points} {self.embedded}".split())


STORIES = (
    Story(
        producing.loading, "load.batch_made load.ids_taken load.accepted load.published load.shrunk"
    ),
    Story(
        archiving.archiving,
        "archive.begun archive.file_written archive.manifest_written archive.verified "
        "archive.marked",
    ),
    Story(producing.posting, "load.accepted serve.posted"),
    Story(producing.uploading, "serve.batch_made load.accepted"),
    Story(producing.exporting, "export.whole"),
    Story(producing.cancelling, "cancel.marked cancel.page_cancelled"),
    Story(
        keeping.purging,
        "purge.marked purge.page_deleted dead_trim.noted erase.noted erase.page_erased",
    ),
    Story(
        producing.preparing,
        "migrate.step_taken migrate.revision migrate.upgraded topics.created topics.grown "
        "topics.configured",
        prepared=False,
    ),
    Story(working.beginning, "lease.registered claim.fence_claimed claim.claimed"),
    Story(working.calling, "call.sending call.answered"),
    Story(working.settling, "settle.committed commit.sending"),
    Story(working.committing, "commit.done"),
    Story(working.splitting, "settle.split"),
    Story(working.following, "settle.ids_taken settle.committed publish.delivered"),
    Story(working.joining, "join.called_up settle.committed"),
    Story(working.writing, "output.put output.settled"),
    Story(working.copying, "output.put hook.leased hook.copied"),
    Story(working.publishing, "publish.delivered publish.shrunk relay.taken"),
    Story(working.streaming, "settle.committed publish.delivered publish.shrunk"),
    Story(working.draining, "drain.group_left drain.settled drain.published"),
    Story(locking.locking, "lock.changed"),
    Story(isolating.isolating, "process.run_sent process.call_received process.run_ended"),
    Story(hooking.hooking, "hook.leased hook.ran hook.written"),
    Story(hooking.telling, "hook.batch_ended hook.leased hook.batch_told hook.written"),
    Story(repairing.reaping, "claim.claimed reap.judged reap.reset"),
    Story(repairing.sweeping, "sweep.ordered trim.trimmed", embedded="trim.low_raised"),
    Story(repairing.compacting, "compact.added compact.moved"),
    Story(repairing.contradicting, "load.accepted claim.conflicting quarantine.kept"),
    Story(repairing.relieving, "relief.ordered", prepared=False),
    Story(
        receiving.receiving,
        "intake.batch_made intake.ids_taken intake.accepted intake.quarantined quarantine.kept",
    ),
    Story(receiving.outsized, "publish.refused publish.set_aside"),
    Story(
        failing.replaying,
        "replay.page_stored replay.stored replay.page_applied replay.page_published",
    ),
    Story(failing.refreshing, "replay.documents_written replay.page_applied"),
    Story(failing.writing_back, "letters.judged letters.lines_judged"),
    Story(failing.loading_back, "from_topic.accepted"),
    Story(failing.waiting, "wait.called_up"),
    Story(
        failing.guarding,
        "guard.turn_taken guard.answered guard.opened guard.called_up",
        prepared=False,
    ),
)

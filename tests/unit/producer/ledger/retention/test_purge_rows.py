"""A refused purge names a command that can be copied into a shell."""

import shlex
from datetime import datetime

from docllm.producer.ledger.retention.purge_rows import Purgeable


def test_the_options_of_a_command_name_the_batch_and_its_group() -> None:
    """A batch's name may have blanks and what a shell would run."""
    name = "may 1; rm -rf $(pwd)"
    target = Purgeable(
        id=1,
        name=name,
        group="g2",
        counts={},
        changed_at=datetime(2027, 1, 31),  # noqa: DTZ001 - as in the ledger, without a zone
        verified_at=None,
        archived_to="",
        archive_digest=None,
        is_archived=False,
        is_purging=False,
        purged_at=None,
    )

    assert shlex.split(target.options) == ["--batch", name, "--group", "g2"]

"""Adds the index by which `status` and the exporter count the quarantined records of a group."""

from docllm.schemas.ledger.migrations.steps import add_index

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the index."""
    add_index("ix_quarantine_left", "quarantine", ["group_name", "replayed_at"])

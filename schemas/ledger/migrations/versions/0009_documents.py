"""Marks the ledgers whose results may lie outside of them, which older programs cannot export.

No table changes for it. Once such a result is stored, `compatible_from` rises to this revision.
"""

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Change nothing."""

"""Adds the traceback of the attempt at which a task died.

All databases add this column instantly.
"""

import sqlalchemy as sa

from docllm.schemas.ledger.migrations.steps import add_column
from docllm.schemas.ledger.sql import Blob

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column; agents of the version before leave it empty."""
    add_column("dead_letter", sa.Column("traceback", Blob))

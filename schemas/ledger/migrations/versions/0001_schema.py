"""The schema of the first release: the tables and indexes of `tables`.

Until that release, each change of `tables` changes this revision, and with it the digest in
`migrations.REVISIONS`. Whoever adds the second revision writes the tables of the release out here.
"""

from alembic import op
from sqlalchemy.schema import CreateTable

from docllm.schemas.ledger.migrations.steps import add_index
from docllm.schemas.ledger.tables import metadata
from docllm.schemas.runtime import crash

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create missing tables and indexes.

    MySQL commits each statement, so a migration that broke off is simply started again.
    """
    for table in metadata.sorted_tables:
        op.get_bind().execute(CreateTable(table, if_not_exists=True))
        crash.reach("migrate.step_taken")
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            add_index(str(index.name), table.name, index.columns.keys())

"""Revisions are read from the files' names, without Alembic."""

import subprocess
import sys

from schemas import migrations
from schemas.migrations.upgrade import scripts


def test_the_wanted_revision_is_alembics_head() -> None:
    """The newest file by name is the end of the chain that Alembic runs."""
    assert migrations.wanted() == scripts().get_current_head()


def test_every_revision_is_known_by_its_files_name() -> None:
    """No script has a revision that its file's name does not begin with."""
    assert migrations._known() == {script.revision for script in scripts().walk_revisions()}


def test_asking_for_the_revision_loads_no_alembic() -> None:
    """A program that does not migrate does not pay for Alembic."""
    code = "import sys, schemas.migrations; sys.exit('alembic' in sys.modules)"

    ended = subprocess.run([sys.executable, "-c", code], check=False)

    assert ended.returncode == 0

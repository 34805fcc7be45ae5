"""The folder of downloaded servers. A download appears in it whole or not at all.

All checkouts of a machine share it, because the downloads take minutes.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def cache() -> Path:
    """Return the folder of downloads: DOCLLM_TEST_CACHE, or `docllm-tests` in the user's cache."""
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("DOCLLM_TEST_CACHE") or Path(users, "docllm-tests")).resolve()


@contextmanager
def appears(target: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, and rename it to `target` when the block ends well.

    If the block fails, nothing is left. If another program was faster, its folder stays.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        filled = Path(folder, target.name)
        filled.mkdir()
        yield filled
        try:
            filled.rename(target)
        except OSError:
            if not target.exists():
                raise

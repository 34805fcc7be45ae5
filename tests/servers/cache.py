"""The folder of downloaded servers. A download appears in it whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
# `.cache` belongs to the builder of the site, which empties it, perhaps while tests run.
DOWNLOADS = CHECKOUT / ".servers"


def cache() -> Path:
    """Return the folder of downloads: DOCLLM_TEST_CACHE, or `.servers` in the checkout."""
    return Path(os.environ.get("DOCLLM_TEST_CACHE") or DOWNLOADS).resolve()


@contextmanager
def appears(target: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, and rename it to `target` when the block ends well.

    If the block fails, nothing is left.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        filled = Path(folder, target.name)
        filled.mkdir()
        yield filled
        filled.rename(target)

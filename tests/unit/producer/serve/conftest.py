"""What the tests of the server's doors share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serving import Client, served


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A client of a new group."""
    with served(tmp_path) as client:
        yield client

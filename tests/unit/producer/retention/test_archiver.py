"""A folder for archives that cannot be used is named, with the reason."""

import re
from pathlib import Path

import pytest

from docllm.producer.retention.archiver import require_folder
from docllm.schemas.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "fault"), [("no-folder", "does not exist"), ("n" * 300, "cannot be used: File name")]
)
def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path, name: str, fault: str) -> None:
    """The system refuses to look at some names at all."""
    path = tmp_path / name

    with pytest.raises(ConfigError, match=re.escape(f"the folder {path} for archives {fault}")):
        require_folder(f"{path.as_uri()}/")


def test_a_folder_and_an_object_store_are_accepted(tmp_path: Path) -> None:
    """Whether a store can be used is seen only by using it."""
    require_folder(f"{tmp_path.as_uri()}/")
    require_folder("s3://bucket/folder/")

"""The file of a type's JSON Schema."""

import json
from pathlib import Path

import pytest

from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.kinds import MAX_BYTES
from tests.unit.schemas.settings.test_sources import load

TOML = "[types.invoice]\nschema = 'invoice.json'"


def test_the_schema_is_read_from_the_folder_of_the_settings(tmp_path: Path) -> None:
    """A relative path belongs to the file that names it; the schema itself is the value."""
    schema = {"type": "object", "required": ["total"]}
    (tmp_path / "invoice.json").write_text(json.dumps(schema))

    assert load(tmp_path, TOML).types["invoice"].schema == schema


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "the file cannot be read: No such file"),
        (b'{"type":\n oops}', "the file is not JSON at line 2"),
        (b"[1]", "the schema is a list; write an object"),
        (b'{"type": "banana"}', "the schema is not a valid JSON Schema"),
        (b" " * (MAX_BYTES + 1), "the file is too large"),
    ],
)
def test_a_file_that_is_no_schema_is_refused_with_its_setting(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    """With such a file each task of the type would fail, one by one, and be paid for."""
    if content is not None:
        (tmp_path / "invoice.json").write_bytes(content)

    with pytest.raises(ConfigError, match=f"line 2: types.invoice.schema is wrong; .*{words}"):
        load(tmp_path, TOML)

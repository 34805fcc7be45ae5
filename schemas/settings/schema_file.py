"""A setting whose value is a JSON Schema in a file of its own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from docllm.schemas.settings import kinds

MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """The path of a schema's file, as it was written."""

    path: Path

    def read(self, base: Path) -> dict[str, Any]:
        """Return the schema; a relative path is below `base`. Raises ValueError if it is none."""
        # Most programs need no validator, and loading one takes time.
        from docllm.schemas.task.line.field_checks import answer_schema  # noqa: PLC0415
        from docllm.schemas.task.line.strict_json import LineError  # noqa: PLC0415

        try:
            with (base / self.path).open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ValueError(f"the file cannot be read: {error.strerror}") from None
        if len(raw) > MAX_BYTES:
            raise ValueError(f"the file is too large; a schema has at most {MAX_BYTES} bytes")
        try:
            return answer_schema("the schema", orjson.loads(raw))
        except orjson.JSONDecodeError as error:
            raise ValueError(f"the file is not JSON at line {error.lineno}") from None
        except LineError as error:
            raise ValueError(f"{error.field} {error.error}; {error.fix}") from None


def schema_file(value: Any) -> SchemaFile:
    """Return the file that a setting names."""
    return SchemaFile(kinds.path(value))

"""What the commands print with `--json`, compared with the published JSON Schemas."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs

SCHEMAS = Path(__file__).parents[2] / "schemas" / "json"


def schema_of(name: str, *, strict: bool = False) -> Any:
    """Return a published schema; if strict, one that allows only the names that it describes."""
    published = json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))
    return _closed(published) if strict else published


def faults(name: str, document: Any, *, strict: bool = True) -> list[str]:
    """Return how a document differs from its schema; if strict, it has names of the schema only."""
    schema = schema_of(name, strict=strict)
    validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    return [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(document)]


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(part) for name, part in schema.items()}
    if isinstance(closed.get("properties"), dict) and "type" in closed:
        closed["additionalProperties"] = False
    return closed

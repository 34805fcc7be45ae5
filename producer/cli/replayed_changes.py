"""Reads the options of `replay` that change what tasks run with."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docllm.producer.input.documents import read_schema
from docllm.schemas.errors import ConfigError
from docllm.schemas.task.line import field_checks
from docllm.schemas.task.line.overrides import Overrides
from docllm.schemas.task.line.strict_json import LineError


def read_overrides(options: argparse.Namespace) -> Overrides:
    """Return the fields that the replay sets, as a line would. Raises ConfigError."""
    readers: dict[str, Callable[[Any], Any]] = {
        "model": lambda name: field_checks.model("model", name),
        "route": lambda name: field_checks.route("route", name),
        "prompt": _prompt,
        "schema": lambda path: field_checks.answer_schema("schema", read_schema(path)),
    }
    overrides: dict[str, Any] = {}
    for field, read in readers.items():
        if (value := getattr(options, field)) is not None:
            try:
                overrides[field] = read(value)
            except LineError as error:
                raise ConfigError(f"--{field} {error.error}; {error.fix}") from None
    return overrides


def _prompt(named: str) -> str:
    """Return the text of the file of this name, if there is one, without line ends behind it."""
    text = named
    if os.path.isfile(named):  # noqa: PTH113 - any text is safe
        try:
            text = Path(named).read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--prompt {named!r} cannot be read as text: {error}") from None
    return field_checks.text("prompt", text)

"""Rewrites commands in messages to match the way in which this program was started.

The source names each command as `python -m producer ...` or `python -m agent ...`. A program that
was started as `docllm` shows `docllm ...` instead, with the configuration file that it reads.
"""

import re
import shlex
import sys
from pathlib import PurePath

# A command up to the last word of its name. The rehearsal LLM reads no configuration.
_COMMAND = re.compile(
    r"python -m (?:producer (?:(?:dead|guard|topics) )?[a-z]++|agent(?: resume| reaper)?)"
    r"\b(?! rehearsal-llm| --config)"
)
_MODULE = re.compile(r"python -m (?:producer\b|(?=agent\b))")


def is_one_command() -> bool:
    """Return whether this program was started as `docllm`, or by a program that was."""
    return bool(sys.argv) and PurePath(sys.argv[0]).stem == "docllm"


def as_called(text: str) -> str:
    """Return the text with its commands in the form in which this program was started."""
    if not is_one_command():
        return text
    return _MODULE.sub(lambda command: "docllm" if "producer" in command[0] else "docllm ", text)


def with_config(text: str, file: str | None) -> str:
    """Return the text with its commands as this program was started, with `--config FILE`."""
    if file is None:
        return as_called(text)
    option = f" --config {shlex.quote(file)}"
    return as_called(_COMMAND.sub(lambda command: command[0] + option, text))

"""Rewrites commands in messages to match the way in which this program was started.

The source names each command as `docllm ...`. A program that was started as `python -m producer` or
`python -m agent` shows that form instead. Each command names the configuration file that the
program reads.
"""

import re
import shlex
import sys
from pathlib import PurePath

# The commands of the two programs; those with actions first.
ACTIONS = ("dead", "guard", "topics")
COMMANDS = (
    *("archive", "cancel", "check", "config", "erase", "export", "exporter", "serve"),
    *("load", "migrate", "purge", "replay", "show", "status", "wait"),
)
_NAME = rf"(?:(?:{'|'.join(ACTIONS)}) [a-z]++|(?:{'|'.join(COMMANDS)}))\b"
# A command up to the last word of its name. The rehearsal LLM reads no configuration.
_COMMAND = re.compile(
    rf"\bdocllm (?:{_NAME}|agent\b(?: resume\b| reaper\b)?)(?! rehearsal-llm| --config)"
)
_AGENT = re.compile(r"\bdocllm (?=agent\b)")
_PRODUCER = re.compile(rf"\bdocllm(?= (?:{_NAME}|--help))|\Adocllm\Z")
_MODULES = ("agent", "producer")


def is_module() -> bool:
    """Return whether this program was started as `python -m agent` or `python -m producer`."""
    program = PurePath(sys.argv[0] if sys.argv else "")
    return program.name == "__main__.py" and program.parent.name in _MODULES


def as_called(text: str) -> str:
    """Return the text with its commands in the form in which this program was started."""
    if not is_module():
        return text
    return _PRODUCER.sub("python -m producer", _AGENT.sub("python -m ", text))


def with_config(text: str, file: str | None) -> str:
    """Return the text with its commands as this program was started, with `--config FILE`."""
    if file is None:
        return as_called(text)
    option = f" --config {shlex.quote(file)}"
    return as_called(_COMMAND.sub(lambda command: command[0] + option, text))

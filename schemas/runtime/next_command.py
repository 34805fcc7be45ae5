"""Adds the configuration file to the commands that a person is asked to run next."""

import re
import shlex

# A command up to the last word of its name. The rehearsal LLM reads no configuration.
_COMMAND = re.compile(
    r"python -m (?:producer (?:(?:dead|guard|topics) )?[a-z]+|agent(?: resume| reaper)?)"
    r"\b(?! rehearsal-llm| --config)"
)


def with_config(text: str, file: str | None) -> str:
    """Return the text with `--config FILE` in each of its commands.

    Without a file the text is returned unchanged.
    """
    if file is None:
        return text
    option = f" --config {shlex.quote(file)}"
    return _COMMAND.sub(lambda command: command[0] + option, text)

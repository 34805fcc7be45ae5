"""The commands that a person is told to run next: they mean the configuration that the program was started with."""

import re
import shlex

# Up to the last word that says which command it is; the rehearsal LLM reads no configuration.
_COMMAND = re.compile(r"python -m (?:producer (?:(?:dead|guard|topics) )?[a-z]+|agent(?: resume| reaper)?)\b(?! rehearsal-llm| --config)")


def with_config(text: str, file: str | None) -> str:
    """Return the text with `--config FILE` in each command that it tells; as it is where no file was named."""
    if file is None:
        return text
    named = f" --config {shlex.quote(file)}"
    return _COMMAND.sub(lambda command: command[0] + named, text)

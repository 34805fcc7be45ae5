"""Refuses tasks without a prompt, unless their type has a fitting prompt or a handler.

Such a task would die at its first attempt.
"""

from collections.abc import Collection

from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.schemas.settings.config import Config
from docllm.schemas.task.line.parsing import PLACEHOLDER, TaskLine


class MissingPrompts:
    """Checks the prompts that tasks take from their types.

    Types that only agents know are taken as they are: an agent may have a handler for them.
    `allowed` are those that the person who loads lets through.
    """

    def __init__(self, *, config: Config, allowed: Collection[str] = ()) -> None:
        self._prompts = {
            name: settings.prompt
            for name, settings in config.types.items()
            if settings.handler is None and name not in allowed
        }

    def check(self, line: ValidLine) -> ValidLine | InvalidLine:
        """Return the line; a task without a prompt that fits becomes a bad line."""
        task = line.task
        if task.body is not None or task.prompt is not None or task.type not in self._prompts:
            return line
        fault = _fault(task, self._prompts[task.type])
        return line if fault is None else line.refused(*fault)


def _fault(task: TaskLine, prompt: str | None) -> tuple[str, str, str] | None:
    """Return the field, the error and the fix of a task that takes its type's prompt, if any."""
    name = task.type
    if prompt is None:
        return (
            "prompt",
            f"is missing, and type {name} has no prompt and no handler here",
            (
                f"write a prompt into the line or into [types.{name}]; "
                f"if only the agents have one, load with --allow-type {name}"
            ),
        )
    with_input = task.text is not None or task.uri is not None
    if with_input and PLACEHOLDER not in prompt:
        return (
            "input",
            f"is given, but the prompt of type {name} has no {PLACEHOLDER}",
            f"leave input out, or write {PLACEHOLDER} into the prompt of [types.{name}]",
        )
    if not with_input and PLACEHOLDER in prompt:
        return (
            "input",
            f"is missing, but the prompt of type {name} has {PLACEHOLDER}",
            f"add input.text or input.uri, or give the line a prompt without {PLACEHOLDER}",
        )
    return None

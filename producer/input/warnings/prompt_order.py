"""Finds prompts that waste the providers' prompt caches, because their document is not last.

Providers keep the beginning that requests share, if it is long enough, and charge less for it.
Whatever comes behind a document is new to them in each request.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.lines import ValidLine
from docllm.schemas.settings.config import BYTES_PER_TOKEN
from docllm.schemas.task.line.parsing import PLACEHOLDER
from docllm.schemas.text.wording import money, number_of, units

LARGE = 100  # tasks with one prompt
CACHED_TOKENS = 1024  # providers cache no beginning that is shorter
_REMEMBERED = 1000  # prompts come from lines, so there may be any number
_CACHED_BYTES = CACHED_TOKENS * BYTES_PER_TOKEN
_MAX_CHAR_BYTES = 4


@dataclass(slots=True)
class _Prompt:
    """The tasks with one prompt: their number, and the bytes in each that no cache can hold."""

    model: str
    lost_bytes: int
    tasks: int = 0


class PromptOrder:
    """Adds up what the prompts of a load lose."""

    def __init__(self, accounts: TaskAccounts) -> None:
        self._accounts = accounts
        self._config = accounts.config
        # Keyed by the prompt's hash (a prompt may be large) and by the fields that determine its
        # model.
        self._prompts: OrderedDict[Hashable, _Prompt] = OrderedDict()

    def add(self, line: ValidLine) -> None:
        """Count one task."""
        task = line.task
        prompt = self._prompt_of(task.type) if task.prompt is None else task.prompt
        if len(prompt) * _MAX_CHAR_BYTES < _CACHED_BYTES or PLACEHOLDER not in prompt:
            return
        if self._config.type_settings(task.type).handler is not None:
            return  # it may do anything with the prompt
        key = hash(prompt), task.model, task.type, task.route
        known = self._prompts.get(key)
        if known is None:
            known = self._prompts[key] = _Prompt(self._accounts.of(task).model, lost_bytes(prompt))
            if len(self._prompts) > _REMEMBERED:
                self._prompts.popitem(last=False)
        known.tasks += 1
        self._prompts.move_to_end(key)

    def __str__(self) -> str:
        """Return the warning, empty without such a prompt."""
        large = [prompt for prompt in self._prompts.values() if prompt.tasks >= LARGE]
        wasting = [prompt for prompt in large if prompt.lost_bytes]
        if not wasting:
            return ""
        tasks = number_of(sum(prompt.tasks for prompt in wasting), "task")
        tokens = sum(prompt.tasks * prompt.lost_bytes for prompt in wasting) // BYTES_PER_TOKEN
        return (
            f"{PLACEHOLDER} is not last in the prompt of {tasks}, so no prompt cache of a provider "
            f"can have what comes after it: about {tokens:,} input tokens of all tasks"
            f"{self._price(wasting)}, which would cost less from a cache; move {PLACEHOLDER} to "
            "the end of the prompt"
        )

    def _price(self, wasting: list[_Prompt]) -> str:
        """Return what these tokens cost at full price; empty if a price is not known."""
        prices = self._config.prices
        if any(prompt.model not in prices for prompt in wasting):
            return ""
        micro = sum(
            prices[prompt.model].least_price_micro(prompt.tasks * prompt.lost_bytes)
            for prompt in wasting
        )
        return f" ({money(units(micro))} at the full price)"

    def _prompt_of(self, type_name: str) -> str:
        return self._config.type_settings(type_name).prompt or ""


def lost_bytes(prompt: str) -> int:
    """Return how many more bytes of a prompt a cache could hold if its document came last."""
    parts = prompt.split(PLACEHOLDER)
    if len(parts) == 1 or not parts[-1].strip():
        return 0
    before, all_parts = len(parts[0].encode()), len("".join(parts).encode())
    return _cached(all_parts) - _cached(before)


def _cached(size: int) -> int:
    return size if size >= _CACHED_BYTES else 0

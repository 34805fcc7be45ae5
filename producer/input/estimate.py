"""Estimates the cost of a load before it runs: tasks, input tokens and their price.

It counts four bytes a token, and says that it is an estimate.
"""

from collections import Counter
from typing import Any

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.lines import ValidLine
from docllm.schemas.settings.config import BYTES_PER_TOKEN
from docllm.schemas.text.wording import units

_NO_NAME = "the default model"


class Estimate:
    """Adds up the tasks of a load by model.

    The model is the one that the line names, else that of the route that tasks of its type take.
    """

    def __init__(self, accounts: TaskAccounts) -> None:
        self._accounts = accounts
        self._prices = accounts.config.prices
        self._bytes: Counter[str] = Counter()
        self.tasks = 0

    def add(self, line: ValidLine) -> None:
        """Count one task: its line, and the document that it names by URI."""
        self.tasks += 1
        model = self._accounts.of(line.task).model or _NO_NAME
        self._bytes[model] += len(line.value) + (line.task.size or 0)

    def scale(self, tasks: int) -> None:
        """Scale the sums from the tasks added so far, a sample, to `tasks` tasks."""
        self._bytes = Counter(
            {model: size * tasks // self.tasks for model, size in self._bytes.items()}
        )
        self.tasks = tasks

    @property
    def tokens_in(self) -> int:
        """The estimated input tokens."""
        return self._bytes.total() // BYTES_PER_TOKEN

    @property
    def cost(self) -> float:
        """The price of the input tokens, in the unit of the price table.

        Tokens of models without a price are left out.
        """
        priced = (
            self._prices[model].least_price_micro(size)
            for model, size in self._bytes.items()
            if model in self._prices
        )
        return units(sum(priced))

    def as_json(self) -> dict[str, Any]:
        """Return the form of the estimate for `--json`; without any price, `cost` is None."""
        unpriced = self._unpriced()
        cost = None if len(unpriced) == len(self._bytes) else self.cost
        return {
            "tasks": self.tasks,
            "tokens_in": self.tokens_in,
            "cost": cost,
            "models_without_price": unpriced,
        }

    def __str__(self) -> str:
        tasks = f"{self.tasks:,} task" + ("" if self.tasks == 1 else "s")
        return (
            f"about {tasks}, {self.tokens_in:,} input tokens "
            f"(estimated: {BYTES_PER_TOKEN} bytes a token); {self._price()}"
        )

    def _unpriced(self) -> list[str]:
        return sorted(model for model in self._bytes if model not in self._prices)

    def _price(self) -> str:
        unpriced = self._unpriced()
        unknown = f"no price is configured for {', '.join(unpriced)}" if unpriced else ""
        if len(unpriced) == len(self._bytes):
            return unknown or "no price"
        return f"{self.cost:,.4f} for the input, the answers come on top" + (
            f"; {unknown}" if unknown else ""
        )

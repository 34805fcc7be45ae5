"""Estimates the cost of a load before it runs: tasks, input tokens and their price.

It counts four bytes a token, and says that it is an estimate. Of documents it counts the text,
which it knows from a sample (`TextSizes`).
"""

import difflib
import json
from collections import Counter
from typing import Any

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.lines import ValidLine
from docllm.schemas.settings.config import BYTES_PER_TOKEN
from docllm.schemas.task.record.hints import most_out
from docllm.schemas.task.task_types import MAP_REDUCE
from docllm.schemas.text.wording import money, units

_NO_NAME = "the default model"
_ALIKE = 0.8  # of names, of which one may be a slip for the other


class Estimate:
    """Adds up the tasks of a load by model.

    The model is the one that the line names, else that of the route that tasks of its type take.
    """

    def __init__(self, accounts: TaskAccounts) -> None:
        self._accounts = accounts
        self._prices = accounts.config.prices
        self._bytes: Counter[str] = Counter()
        self._most_out: Counter[str] = Counter()
        self._bounded = 0  # tasks whose answers are in `_most_out`
        self.tasks = 0

    def add(self, line: ValidLine) -> None:
        """Count one task: its line, the text of its document, and the most that it may answer."""
        self.tasks += 1
        task = line.task
        model = self._accounts.of(task).model or _NO_NAME
        self._bytes[model] += line.input_bytes
        params = task.body or task.params
        if params and (most := most_out(params)) and self._has_one_call(task.type):
            self._most_out[model] += most
            self._bounded += 1

    def _has_one_call(self, type_name: str) -> bool:
        has_handler = self._accounts.config.type_settings(type_name).handler is not None
        return not has_handler and type_name != MAP_REDUCE

    def scale(self, tasks: int) -> None:
        """Scale the sums from the tasks added so far, a sample, to `tasks` tasks."""
        self._bytes, self._most_out = (
            Counter({model: sum_ * tasks // self.tasks for model, sum_ in sums.items()})
            for sums in (self._bytes, self._most_out)
        )
        self._bounded = tasks if self._bounded == self.tasks else 0
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

    @property
    def tokens_out_most(self) -> int | None:
        """The most tokens that the answers may have; None unless each task sets a limit."""
        return self._most_out.total() if self._bounded == self.tasks else None

    @property
    def cost_most(self) -> float | None:
        """The price of the input and of the longest answers; None if it is not known."""
        if self.tokens_out_most is None or self._unpriced():
            return None
        answers = (
            self._prices[model].cost_micro(0, most) for model, most in self._most_out.items()
        )
        return self.cost + units(sum(answers))

    def as_json(self) -> dict[str, Any]:
        """Return the form of the estimate for `--json`; without any price, `cost` is None."""
        unpriced = self._unpriced()
        cost = None if len(unpriced) == len(self._bytes) else self.cost
        return {
            "tasks": self.tasks,
            "tokens_in": self.tokens_in,
            "cost": cost,
            "tokens_out_most": self.tokens_out_most,
            "cost_most": self.cost_most,
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
        names = ", ".join(unpriced)
        unknown = f"no price is configured for {names}" if unpriced else ""
        if unpriced and unpriced != [_NO_NAME]:
            first = next(name for name in unpriced if name != _NO_NAME)
            alike = difflib.get_close_matches(
                first, self._prices.keys() - self._bytes.keys(), 1, _ALIKE
            )
            other = f"; there is one for {alike[0]}" if alike else ""
            unknown += f" (set [prices.{json.dumps(first)}]{other})"
        if len(unpriced) == len(self._bytes):
            return unknown or "no price"
        answers = "the answers come on top"
        if self.cost_most is not None:
            answers = f"at most {money(self.cost_most)} with the longest answers"
        return f"{money(self.cost)} for the input, {answers}" + (f"; {unknown}" if unknown else "")

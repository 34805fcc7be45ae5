"""One run of a group: what was done since it began, how fast, and at what cost. Pure."""

from collections.abc import Collection

from docllm.producer.ledger.status.progress import Totals
from docllm.producer.text.pace import PaceMeter, duration, left_text, rate_text
from docllm.schemas.text.wording import money, number_of, units

MODELS_NAMED = 3
_ENDS = ("succeeded", "dead", "cancelled")


class GroupRun:
    """The work of a group since the first call of `see`.

    A run includes the tasks that were open when it began, and tasks that are loaded or replayed
    during it. `priced` are the models with a price when the program started.
    """

    def __init__(self, *, priced: Collection[str]) -> None:
        self._priced = priced
        self._first: Totals | None = None
        self._now = Totals()
        self._pace = PaceMeter()
        self.began_s = self.changed_at_s = 0.0

    def see(self, totals: Totals, now_s: float) -> None:
        """Update the run with the present totals."""
        if self._first is None:
            self._first, self.began_s, self.changed_at_s = totals, now_s, now_s
        elif totals != self._now:
            self.changed_at_s = now_s
        self._now = totals
        self._pace.see(self.done, now_s)

    @property
    def begun(self) -> bool:
        """Whether any totals were seen."""
        return self._first is not None

    @property
    def open(self) -> int:
        """How many tasks of the group are not final."""
        return self._now.open

    @property
    def done(self) -> int:
        """How many tasks ended in this run."""
        return sum(self.ends.values())

    @property
    def dead_by_class(self) -> dict[str, int]:
        """How many tasks died in this run, by error class, the most first."""
        before = self._before.dead_by_class
        dead = {name: n - before.get(name, 0) for name, n in self._now.dead_by_class.items()}
        most_first = sorted(dead.items(), key=lambda item: (-item[1], item[0]))
        return {name: count for name, count in most_first if count > 0}

    @property
    def ends(self) -> dict[str, int]:
        """How many tasks ended in this run, by how they ended."""
        return {name: self._since(name) for name in _ENDS}

    @property
    def shares(self) -> tuple[int, int]:
        """How many tasks are done, and how many this run has."""
        return self.done, self.done + self.open

    def line(self) -> str:
        """Return the progress on one line."""
        done, total = self.shares
        facts = "".join(f", {fact}" for fact in self._facts())
        retries = f"; {self._now.retries}" if self._now.retries else ""
        return f"{done:,} of {number_of(total, 'task')} done{facts}{retries}"

    def facts(self) -> str:
        """Return the text beside the progress bar."""
        done, total = self.shares
        facts = (f"{done:,} of {total:,}", *self._facts(), self._now.retries)
        return "  ".join(filter(None, facts))

    def _facts(self) -> list[str]:
        left = left_text(self._left_s()) if self.open else ""
        dead = self._since("dead")
        facts = (rate_text(self._pace.per_s), left, f"{dead:,} dead" if dead else "", self.cost())
        return [fact for fact in facts if fact]

    def _left_s(self) -> float | None:
        """Return in how many seconds all is done if no retry fails; None if nobody can tell."""
        others = self.open - self._now.later
        others_s = self._pace.left_s(others) if others > 0 else 0.0
        return None if others_s is None else max(others_s, self._now.later_left_s)

    def cost(self) -> str:
        """Return the run's cost for models with a price; empty if no tokens were used."""
        before = self._before.tokens_by_model
        models = [
            name
            for name, tokens in self._now.tokens_by_model.items()
            if name and tokens > before.get(name, 0)
        ]
        if not models:
            return ""
        unpriced = sorted(model for model in models if not self._has_price(model))
        if not unpriced:
            return f"cost {money(units(self.cost_micro), '')}"
        names = ", ".join(unpriced[:MODELS_NAMED]) + (", ..." if unpriced[MODELS_NAMED:] else "")
        missing = f"no price set for {'models' if unpriced[1:] else 'model'} {names}"
        some_priced = len(unpriced) < len(models)
        return f"cost {money(units(self.cost_micro), '')}, {missing}" if some_priced else missing

    def _has_price(self, model: str) -> bool:
        """Return whether a model has a price.

        What its calls cost shows a price that was set while agents run, or under another name.
        """
        costs, before = self._now.cost_by_model, self._before.cost_by_model
        return model in self._priced or costs.get(model, 0) > before.get(model, 0)

    @property
    def cost_micro(self) -> int:
        """The cost of this run, in millionths of the currency's unit."""
        return self._since("cost_micro")

    def summary(self, now_s: float) -> str:
        """Return the summary of this run, for its end."""
        done, total = self.shares
        counts = [
            f"{number:,} {name}"
            for name, number in self.ends.items()
            if number or name == "succeeded"
        ]
        if retried := self._since("retried"):
            counts.append(f"{number_of(retried, 'failed attempt')} tried again")
        took = duration(now_s - self.began_s)
        if self.open:
            unfinished = f"{self.open:,} of {number_of(total, 'task')} not done"
            head = f"ended with {unfinished}, which any agent goes on with; done in {took}"
        else:
            head = f"done: {number_of(done, 'task')} in {took}"
        cost = self.cost()
        return f"{head}: {', '.join(counts)}" + (f"; {cost}" if cost else "")

    @property
    def _before(self) -> Totals:
        return self._first or Totals()

    def _since(self, name: str) -> int:
        # Totals may fall: a batch that was archived during the run no longer counts.
        return max(0, int(getattr(self._now, name)) - int(getattr(self._before, name)))

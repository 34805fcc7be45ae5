"""Counts the answers that were taken although they are not as OpenAI would send them."""

import logging
from collections.abc import Iterable

log = logging.getLogger(__name__)

MAX_KINDS = 20
OTHER = "other"


class OddAnswers:
    """The odd answers of an agent since its start, by what is odd about them.

    A kind may contain a word of a stranger, so of more than `most_kinds` the newer ones are counted
    together.
    """

    def __init__(self, most_kinds: int = MAX_KINDS) -> None:
        self._most_kinds = most_kinds
        self._counts: dict[str, int] = {}

    def note(self, route: str, kinds: Iterable[str]) -> None:
        """Count an answer; log the first one of each kind."""
        for kind in kinds:
            if kind in self._counts:
                self._counts[kind] += 1
            elif len(self._counts) < self._most_kinds:
                self._counts[kind] = 1
                log.warning(
                    "an answer of route %s was taken although it is odd (%s); further ones are "
                    "counted in docllm_odd_answers_total",
                    route,
                    kind,
                )
            else:
                self._counts[OTHER] = self._counts.get(OTHER, 0) + 1

    def counts(self) -> dict[str, int]:
        """Return how many answers were odd, by kind."""
        return dict(self._counts)

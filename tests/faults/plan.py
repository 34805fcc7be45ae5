"""Draws a plan of faults and their times from a seed; the same seed gives the same plan.

The course of a run does not depend on the seed alone.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.kinds_database import KINDS as DATABASE
from tests.faults.kinds_links import KINDS as LINKS
from tests.faults.kinds_llm import KINDS as LLM
from tests.faults.kinds_people import KINDS as PEOPLE
from tests.faults.kinds_programs import KINDS as PROGRAMS
from tests.faults.kinds_servers import KINDS as SERVERS
from tests.faults.kinds_topics import KINDS as TOPICS
from tests.faults.site import AGENTS

KINDS = {
    kind.name: kind for kind in (*PROGRAMS, *SERVERS, *DATABASE, *LINKS, *LLM, *TOPICS, *PEOPLE)
}
BEGIN_S, END_S = 20.0, 100.0  # without faults: agents start working, and at the end finish all work
EVERY_S = 15.0  # a fault, or more often if all kinds must fit
SPREAD = 0.9  # of the time between two faults is random


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned fault, `at_s` after the beginning; `hold_s` is its length."""

    number: int
    at_s: float
    kind: str
    seat: str
    hold_s: float
    seed: int


def draw(
    seed: int, minutes: float, kinds: Sequence[str], every_s: float = EVERY_S
) -> list[Planned]:
    """Return a plan with each of these kinds at least once, in order of time."""
    chance = random.Random(f"faults {seed}")  # noqa: S311 - a plan, not a secret
    span_s = max(1.0, minutes * 60 - BEGIN_S - END_S)
    names = [*kinds, *_more(chance, kinds, int(span_s / every_s) - len(kinds))]
    chance.shuffle(names)
    gap_s = span_s / len(names)
    return [
        _planned(chance, number, name, BEGIN_S + gap_s * (number + SPREAD * chance.random()))
        for number, name in enumerate(names)
    ]


def _more(chance: random.Random, kinds: Sequence[str], count: int) -> list[str]:
    return chance.choices(kinds, [KINDS[name].weight for name in kinds], k=max(0, count))


def _planned(chance: random.Random, number: int, name: str, at_s: float) -> Planned:
    kind = KINDS[name]
    own = [need for need in kind.needs if need in AGENTS]
    seat = own[0] if own else chance.choice(AGENTS)
    return Planned(
        number,
        round(at_s, 1),
        name,
        seat,
        round(chance.uniform(*kind.hold_s), 1),
        chance.getrandbits(32),
    )

"""One fault: what it needs, what it does, and the evidence that it met somebody.

A fault that met nobody makes the run void.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.faults.site import Site, pause, quiet, wait_for
from tests.integration.support.programs import Program

PATIENCE_S = 60.0  # to meet somebody, beyond its own length


class Cost(Enum):
    """What a fault may rightly cost: the repeated calls of the agents that it hit."""

    NOTHING = "nothing"
    REPLY = "reply"  # an answer may not have arrived
    LEASE = "lease"  # the agent may have been declared lost, so its claims run again


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    `needs` are the things that no other fault may use at the same time. `{seat}` stands for the
    planned seat.
    """

    name: str
    act: Callable[["Fault"], None]
    needs: tuple[str, ...]
    hold_s: tuple[float, float] = (4.0, 12.0)
    cost: Cost = Cost.NOTHING
    weight: float = 1.0
    root: bool = False  # only root can do it


@dataclass(slots=True)
class Fault:
    """A fault in progress; `seats` are those of the agents that it hits."""

    number: int
    kind: Kind
    site: Site
    seat: str
    hold_s: float
    chance: random.Random
    seats: tuple[str, ...] = ()
    target: str = ""
    begun_s: float = 0.0
    bit: bool = False
    evidence: dict[str, Any] = field(default_factory=dict)

    def begin(self, target: str, *seats: str) -> None:
        """Log the fault's targets, and that it begins now."""
        self.target, self.seats, self.begun_s = target, seats, time.time()

    def hold(self, bit: Callable[[], object]) -> None:
        """Let the fault last, and longer until it has met somebody."""
        pause(self.hold_s)
        self.bit = wait_for(lambda: quiet(bit), PATIENCE_S)

    def told(self, look: Callable[[], Any]) -> Any:
        """Return a server's first result, or None after a while."""
        answers: list[Any] = []

        def heard() -> bool:
            answers[:] = [quiet(look)]
            return answers[0] is not None

        wait_for(heard, PATIENCE_S)
        return answers[0]

    def working(self) -> Program:
        """Return the seat's agent if it holds tasks. Raises NobodyError if there is none."""
        busy_programs: list[Program] = []

        def busy() -> bool:
            program = self.site.seats.program_in(self.seat)
            if program is not None and self.site.seats.claims(program):
                busy_programs.append(program)
            return bool(busy_programs)

        if not wait_for(lambda: quiet(busy), PATIENCE_S):
            raise NobodyError(f"nobody works at {self.seat}")
        self.evidence["pid"] = busy_programs[0].pid
        return busy_programs[0]


class NobodyError(Exception):
    """There was no agent to hit."""

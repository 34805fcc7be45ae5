"""The programs that always run: each has a seat, and is started again after its end.

A seat is its own way to every server.
"""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.faults.faultlog import FaultLog
from tests.integration.support.ledgers import LedgerView
from tests.integration.support.programs import Program

CHECK_EVERY_S = 0.2
RESTART_AFTER_S = 1.0  # between an end and the next start, as an orchestrator waits


@dataclass(eq=False)
class Seat:
    """A place for one agent after another; `wanted` tells whether it shall be taken."""

    name: str
    wanted: bool = True
    program: Program | None = None
    again_s: float = 0.0
    expected: set[str] = field(default_factory=set)  # programs that a fault ended


class Seats:
    """Keeps the seats taken; `start` starts the program of a seat."""

    def __init__(
        self,
        *,
        seats: list[Seat],
        start: Callable[[str], Program],
        ledger: LedgerView,
        faultlog: FaultLog,
    ) -> None:
        self.by_name = {seat.name: seat for seat in seats}
        self._start = start
        self._ledger = ledger
        self._log = faultlog
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="seats", daemon=True)

    def begin(self) -> None:
        """Start an agent in each seat, and again whenever one has ended."""
        self._keeper.start()

    def end(self) -> None:
        """Start no more agents."""
        self._over.set()
        self._keeper.join()

    def program_in(self, name: str) -> Program | None:
        """Return the agent of a seat, None while the seat is empty."""
        program = self.by_name[name].program
        return program if program is not None and program.running else None

    def end_program(self, name: str, program: Program, number: signal.Signals) -> None:
        """Send a signal that shall end an agent."""
        self.by_name[name].expected.add(program.name)
        program.signal(number)

    def want(self, name: str, *, wanted: bool) -> None:
        """Set whether a seat shall be taken."""
        with self._lock:
            self.by_name[name].wanted = wanted

    def claims(self, program: Program) -> dict[str, int]:
        """Return the claims of an agent by task, with the number of losses of each."""
        return self._ledger.claims_of(program.pid)

    def _keep(self) -> None:
        while not self._over.wait(CHECK_EVERY_S):
            with self._lock:
                for seat in self.by_name.values():
                    self._look(seat)

    def _look(self, seat: Seat) -> None:
        program = seat.program
        if program is not None and not program.running:
            self._log.note(
                "ended",
                seat=seat.name,
                program=program.name,
                pid=program.pid,
                code=program.code,
                by=self._by(seat, program),
            )
            seat.program, seat.again_s = None, time.monotonic() + RESTART_AFTER_S
        if seat.program is None and seat.wanted and time.monotonic() >= seat.again_s:
            seat.program = self._start(seat.name)
            self._log.note(
                "started", seat=seat.name, program=seat.program.name, pid=seat.program.pid
            )

    @staticmethod
    def _by(seat: Seat, program: Program) -> str:
        return "fault" if program.name in seat.expected else "itself"

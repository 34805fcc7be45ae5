"""One installation on which a story is played.

Programs die at a point, new ones go on, and at the end the checker must find nothing.
"""

import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import Executable, delete, update

from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.ledger.tables import outbox, tally, task, task_loss
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import SystemClock
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment
from tests.integration.support.ledgers import engine
from tests.integration.support.programs import Program
from tests.invariants.evidence import Evidence, Kill

DEATH_S = 240.0  # what follows a sweep may come with the next but one, a minute after each other
RECOVERY_S = 300.0


class Installation:
    """A deployment, and the points that were hit on it.

    With `long`, each death is at a random time of those that a story allows.
    """

    def __init__(self, deployment: Deployment, *, chance: random.Random, long: bool) -> None:
        self.deployment = deployment
        self.long = long
        self.hit: list[str] = []
        self._chance = chance

    @property
    def kafka(self) -> bool:
        """Return whether this is Kafka and MariaDB."""
        return self.deployment.kafka

    # ---- deaths

    def crash(
        self,
        point: str,
        *arguments: str,
        most: int = 1,
        then: Callable[[Program], object] | None = None,
    ) -> Program:
        """Start a program that dies at a point, run `then`, and check that it died there.

        `most` is how often the program surely reaches the point.
        """
        order = f"{point}:{self._chance.randint(1, most)}" if self.long else point
        program = self.deployment.start(*arguments, **{crash.VARIABLE: order})
        if then is not None:
            then(program)
        code = program.wait(DEATH_S)
        last = program.err.splitlines()[-1:]
        assert (code, last) == (-signal.SIGKILL, [f"killed at {order}"]), (
            f"{program.name} did not die at {order}: {code}, {program.tail()}"
        )
        if arguments[0] == "agent":
            claims = frozenset(self.deployment.ledger.claims_of(program.pid))
            self.deployment.kills.append(Kill(SystemClock().now_s(), claims))
        self.hit.append(point)
        return program

    def crash_agent(
        self,
        point: str,
        *options: str,
        most: int = 1,
        then: Callable[[Program], object] | None = None,
    ) -> Program:
        """Start an agent that dies at a point."""
        return self.crash(
            point, "agent", "--group", self.deployment.group, *options, most=most, then=then
        )

    def crash_producer(self, point: str, command: str, *options: str, most: int = 1) -> Program:
        """Start a command of the producer that dies at a point."""
        return self.crash(
            point, "producer", command, *options, "--group", self.deployment.group, most=most
        )

    def crash_reaper(self, point: str) -> Program:
        """Start a reaper that dies at a point."""
        return self.crash(point, "agent", "reaper", "--group", self.deployment.group)

    # ---- time and orders

    def age_orders(self) -> None:
        """Age the orders past the time for which they are left to their writer or relay.

        That process is dead.
        """
        self.write(update(outbox).values(due_at=utc_after(-1.0)))

    def hold_orders(self) -> None:
        """Keep the relay from the present orders, however slow this machine is."""
        self.write(update(outbox).values(due_at=utc_after(3600.0)))

    def judge_deaths(self) -> None:
        """Let a reaper judge the agents that died, and give their tasks back."""
        reaper = self.deployment.start("agent", "reaper", "--group", self.deployment.group)
        self.deployment.until(
            lambda: not self.deployment.ledger.counts()["processing"], "the deaths to be judged"
        )
        reaper.signal(signal.SIGTERM)
        assert reaper.wait() == 0, reaper.tail()

    def forget_losses(self) -> None:
        """Take no task for the cause of the deaths so far; a third one would end it rightly."""
        self.write(update(task).values(lease_losses=0), delete(task_loss))

    def age_counts(self) -> None:
        """Age the counts past the time from which on they are rolled up."""
        self.write(update(tally).values(created_at=utc_after(-1000.0)))

    def write(self, *statements: Executable) -> None:
        """Write to the ledger without docllm."""
        deployment = self.deployment
        here = f"sqlite:///{deployment.folder / 'docllm-data' / 'ledger.sqlite'}"
        url = deployment.environ["DOCLLM_DATABASE_URL"] if self.kafka else here
        with engine(url).begin() as connection:
            for statement in statements:
                connection.execute(statement)

    # ---- after the deaths

    def recover(self, *options: str, odd: Sequence[str] = ()) -> Evidence:
        """Run a new agent until the group's work is done, then check.

        The checker may only find violations of the kinds in `odd`.
        """
        self.deployment.until_done(*options, timeout_s=RECOVERY_S)
        run = self.evidence()
        violations = [line for line in checker.violations(run) if not line.startswith(tuple(odd))]
        assert violations == [], "\n".join([f"after {', '.join(self.hit)}:", *violations])
        return run

    def evidence(self) -> Evidence:
        """Return the evidence; copies of a dead letter, which a death may leave, count once."""
        run = self.deployment.evidence()
        return replace(run, letters=list(dict.fromkeys(run.letters)))

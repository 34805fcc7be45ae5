"""One installation of docllm: a data folder, or a group on one set of servers.

It runs the programs and gathers the evidence.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy.exc import OperationalError

from docllm.agent.ledger.recovery.reaping import LOSS_LIMIT
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.sources import load_config
from docllm.schemas.task.record.topics import RESULTS, Topics, duration_s
from tests.integration.support.buses import Bus
from tests.integration.support.ledgers import LedgerView, spelled
from tests.integration.support.programs import (
    PATIENCE_S,
    Done,
    Program,
    RehearsalLLM,
    environment,
    until,
)
from tests.invariants.evidence import Evidence, Kill

BATCH = "tasks"
PROBE = "docllm-probe/"  # calls that probe a route, for no task


class Deployment:
    """Programs of one group in one folder. `close` ends all programs started here."""

    def __init__(
        self,
        *,
        folder: Path,
        group: str,
        bus: Bus,
        ledger_url: str,
        settings: Mapping[str, str],
        kafka: bool,
    ) -> None:
        self.folder = folder
        self.group = group
        self.topics = Topics(group)
        self.bus = bus
        self.ledger = LedgerView(ledger_url)
        self.environ = environment(**settings)
        self.kafka = kafka
        self.loaded: set[str] = set()
        self.kills: list[Kill] = []
        self.programs: list[Program] = []
        self.llms: list[RehearsalLLM] = []
        folder.mkdir(parents=True, exist_ok=True)

    def use_tiers(self, *tiers: str, max_attempts: int = 5) -> None:
        """Set the retry tiers, shortest first, and the attempts of tasks loaded from now on."""
        self.environ |= {
            "DOCLLM_RETRY_TIERS": ",".join(tiers),
            "DOCLLM_MAX_ATTEMPTS": str(max_attempts),
        }
        if self.kafka:
            self.producer("topics", "apply")

    # ---- programs

    def start(self, *arguments: str, name: str = "", **environ: str) -> Program:
        """Start `python -m ARGUMENTS`."""
        name = f"{len(self.programs):02}-{name or arguments[0]}"
        program = Program(
            arguments, folder=self.folder, environ={**self.environ, **environ}, name=name
        )
        self.programs.append(program)
        return program

    def run(self, *arguments: str, timeout_s: float = PATIENCE_S, **environ: str) -> Done:
        """Run `python -m ARGUMENTS` to its end."""
        program = self.start(*arguments, name="-".join(arguments[:2]), **environ)
        return Done(program.wait(timeout_s), program.out, program.err)

    def producer(
        self, command: str, *options: str, code: int = 0, timeout_s: float = PATIENCE_S
    ) -> str:
        """Run a command of the producer, which must end with `code`; return its stdout."""
        done = self.run("producer", command, *options, "--group", self.group, timeout_s=timeout_s)
        assert done.code == code, done
        return done.out

    def llm(self, *options: str) -> RehearsalLLM:
        """Start a rehearsal LLM for the agents that start from now on."""
        llm = RehearsalLLM(
            *options, folder=self.folder, environ=self.environ, name=f"llm{len(self.llms)}"
        )
        self.llms.append(llm)
        self.programs.append(llm)
        self.environ |= {"DOCLLM_LLM_BASE_URL": llm.url, "DOCLLM_LLM_MODEL": "rehearsal"}
        return llm

    def agent(self, *options: str, **environ: str) -> Program:
        """Start an agent of the group."""
        return self.start("agent", "--group", self.group, *options, **environ)

    def until_done(self, *options: str, agents: int = 1, timeout_s: float = 400) -> list[Program]:
        """Run agents until the group's work is done and they ended with 0; return them."""
        started = [self.agent("--until-done", *options) for _ in range(agents)]
        for program in started:
            assert program.wait(timeout_s) == 0, program.tail()
        return started

    def kill(self, victim: Program, *, spare_suspects: bool = True) -> bool:
        """Kill an agent with SIGKILL and record its claims; return False if it was spared."""
        killed = self.kill_process(victim.pid, spare_suspects=spare_suspects)
        if killed:
            victim.end()
            note = self.kills[-1]
            self.kills[-1] = replace(
                note, claimed=note.claimed | self.ledger.claims_of(victim.pid).keys()
            )
        return killed

    @property
    def given_up(self) -> set[str]:
        """Return the tasks that killed agents had claimed often enough to end them rightly."""
        losses = Counter(name for kill in self.kills for name in kill.claimed)
        return {name for name, times in losses.items() if times >= LOSS_LIMIT}

    def kill_process(self, pid: int, *, spare_suspects: bool = True) -> bool:
        """Kill the agent of this process with SIGKILL and record its claims, or spare it.

        Returns False if it was spared. The agent is frozen while its claims are read. A call can
        only have begun after its claim, so the record holds all of them.

        An agent that holds a task that was lost twice is spared, because a third loss would rightly
        end that task. A claim that was just being committed may show only after the agent's death,
        when SQLite recovers the log of writers that are all gone, or a server ends the statement.

        An agent is also spared if it froze while it kept everybody from reading the ledger, as
        SQLite's locks can.
        """
        os.kill(pid, signal.SIGSTOP)
        try:
            claimed = self.ledger.claims_of(pid)
        except OperationalError:
            os.kill(pid, signal.SIGCONT)
            return False
        if spare_suspects and max(claimed.values(), default=0) >= 2:
            os.kill(pid, signal.SIGCONT)
            return False
        os.kill(pid, signal.SIGKILL)
        self.kills.append(Kill(SystemClock().now_s(), frozenset(claimed)))
        return True

    def close(self) -> None:
        """End all programs that still run."""
        for program in self.programs:
            program.end()

    # ---- tasks

    def write_lines(self, lines: Iterable[Mapping[str, Any]], batch: str = BATCH) -> Path:
        """Write task lines to a file that is loaded as `batch`."""
        path = self.folder / f"{batch}.jsonl"
        path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
        return path

    def load(self, count: int, batch: str = BATCH) -> None:
        """Load `count` small tasks."""
        path = self.write_lines((task_line(number) for number in range(count)), batch)
        self.producer("load", str(path))
        self.expect(batch, (f"t{number}" for number in range(count)))

    def expect(self, batch: str, keys: Iterable[str]) -> None:
        """Record tasks that were accepted."""
        self.loaded |= {spelled(batch, key.encode()) for key in keys}

    def status(self) -> dict[str, Any]:
        """Return the output of `status --json`."""
        status: dict[str, Any] = orjson.loads(self.producer("status", "--json"))
        return status

    def until(self, true: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until `true` returns a true value.

        Otherwise, or if an agent has broken, fail with the programs' last output.
        """
        try:
            until(lambda: self._broken() or true(), what, timeout_s)
        except AssertionError as error:
            words = "\n".join(
                f"{program.name}: {program.tail()}"
                for program in self.programs
                if program.running and program not in self.llms
            )
            raise AssertionError(f"{error}; {self.ledger.counts()}\n{words}") from None
        if broken := self._broken():
            raise AssertionError(
                f"while waiting for {what} {broken[0].name} ended; {broken[0].tail()}"
            )

    def _broken(self) -> list[Program]:
        """Return agents that ended by themselves with an error."""
        return [agent for agent in self.agents if agent.code is not None and agent.code > 0]

    @property
    def agents(self) -> list[Program]:
        """Return every agent that was started."""
        return [program for program in self.programs if program.name.endswith("-agent")]

    def until_settled(self, count: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until at least this many tasks have succeeded."""
        self.until(
            lambda: self.ledger.counts()["succeeded"] >= count, f"{count} settled tasks", timeout_s
        )

    # ---- evidence

    def evidence(self) -> Evidence:
        """Return the evidence after the end of a run."""
        return Evidence(
            loaded=frozenset(self.loaded),
            tasks=self.ledger.tasks(),
            attempts=self.ledger.attempts(),
            tiers_s=self.tiers_s,
            orders=self.ledger.orders(),
            positions=[
                position
                for topic in self.bus.topics(f"{self.group}.")
                if (destination := self.topics.destination(topic)) not in {"dlq", RESULTS}
                for position in self.bus.positions(self.topics.consumer_group(destination), topic)
            ],
            letters=self.bus.letters(self.topics.name("dlq")),
            quarantined=[row.id for row in self.ledger.quarantined()],
            calls=[
                call for llm in self.llms for call in llm.calls() if not call.name.startswith(PROBE)
            ],
            kills=self.kills,
        )

    @property
    def tiers_s(self) -> list[float]:
        """Return the delays of the configured tiers."""
        config = load_config(flags={}, environ=self.environ, cwd=self.folder)
        return [float(duration_s(tier)) for tier in config.retry_tiers]

    def said(self) -> str:
        """Return everything that the programs have printed, and every text file they wrote."""
        texts = [
            path.read_text(errors="replace")
            for path in sorted(self.folder.iterdir())
            if path.suffix in {".out", ".err", ".jsonl"}
        ]
        return "\n".join(texts)


def task_line(number: int, **more: Any) -> dict[str, Any]:
    """Return a small task line."""
    text = (
        f"Document {number} tells of a small thing. It says it twice, so that there is "
        "something to leave out."
    )
    return {"id": f"t{number}", "prompt": "Summarize: {document}", "input": {"text": text}} | more


def seeded() -> random.Random:
    """Return the run's random generator and print its seed; DOCLLM_TEST_SEED repeats a run."""
    seed = int(os.environ.get("DOCLLM_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    # A test's figures belong to its output.
    print(f"seed {seed}: repeat with DOCLLM_TEST_SEED={seed}")  # noqa: T201
    return random.Random(seed)  # noqa: S311 - it picks moments and protects nothing

"""What people do all the time: load batches, write to the inbox, cancel, replay, and so on.

They also open guards and look. One thread does all of it. A command that fails because of a server
is repeated, as a person would do. Accepted tasks are recorded by name.
"""

import random
import threading
import time
from collections.abc import Iterable

import orjson
from confluent_kafka import KafkaException

from docllm.schemas.task.record.envelope import Outgoing
from tests.faults.site import CAPPED, Site, quiet
from tests.integration.support.deployment import task_line
from tests.integration.support.ledgers import spelled
from tests.integration.support.programs import Program

BATCH = (200, 600)
# Tasks that wait or run. A fault must meet some, and too many would only delay the end.
MIN_OPEN, MAX_OPEN = 150, 1500
COMMAND_S = 180.0
RETRY_COMMAND_S, INSIST_S = 1.0, 300.0
UNREACHABLE = 3


class Traffic:
    """The commands of a run.

    `loaded` has the names of accepted tasks, `maybe` those of tasks that may or may not have been
    accepted.
    """

    def __init__(self, *, site: Site, tasks: int, over_s: float, chance: random.Random) -> None:
        self.loaded: set[str] = set()
        self.maybe: set[str] = set()
        self.done: dict[str, int] = {}
        self._site = site
        self._tasks = tasks
        self._over_s = over_s
        self._chance = chance
        self._lock = threading.Lock()
        self._batches = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def begin(self) -> None:
        """Start."""
        self._began_s = time.monotonic()
        self._thread.start()

    def end(self) -> None:
        """Finish the present command, and run no other."""
        self._stop.set()
        self._thread.join()

    def batch(self, count: int, **more: object) -> tuple[str, list[str]]:
        """Write a file of tasks; return its path and the names of its tasks.

        They are not accepted yet.
        """
        with self._lock:
            self._batches += 1
            batch = f"b{self._batches}"
        tenant = {"tenant": CAPPED} if self._site.limited else {}
        lines = (
            task_line(number, **more, **(tenant if number % 10 == 0 else {}))
            for number in range(count)
        )
        path = self._site.deployment.write_lines(lines, batch)
        return str(path), [spelled(batch, b"t%d" % number) for number in range(count)]

    def load(self, path: str, names: Iterable[str]) -> None:
        """Load a file until that has succeeded; only then its tasks are known to be accepted."""
        self.insist("load", path)
        with self._lock:
            self.loaded |= set(names)

    def insist(self, *command: str) -> Program:
        """Repeat a command until it succeeds, or fails for another reason than a server's."""
        end_s = time.monotonic() + INSIST_S
        while True:
            program = self._site.tool(*command)
            code = program.wait(COMMAND_S)
            self.done[command[0]] = self.done.get(command[0], 0) + (code == 0)
            if code == 0:
                return program
            self._site.log.note(
                "command", command=list(command), code=code, said=program.err[-400:]
            )
            if code != UNREACHABLE or time.monotonic() > end_s:
                return program
            time.sleep(RETRY_COMMAND_S)

    def open_guards(self) -> None:
        """Open every raised guard."""
        listed = self.insist("guard", "list", "--json").out
        for batch in sorted(
            {guard["batch"] for guard in orjson.loads(listed or b'{"guards": []}')["guards"]}
        ):
            self.insist("guard", "open", batch)

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            if self._wanted():
                self._act()

    def _wanted(self) -> bool:
        passed = min(1.0, (time.monotonic() - self._began_s) / self._over_s)
        left = quiet(self._site.deployment.ledger.open)
        if left is None:
            return False
        return left < MIN_OPEN or (left < MAX_OPEN and len(self.loaded) < self._tasks * passed)

    def _act(self) -> None:
        acts = {
            self._load: 12,
            self._inbox: 2,
            self._cancel: 1,
            self._replay: 2,
            self._cancelled_again: 1,
            self._look: 1,
        }
        (act,) = self._chance.choices(list(acts), list(acts.values()))
        act()

    def _load(self) -> None:
        self.load(*self.batch(self._chance.randint(*BATCH)))

    def _inbox(self) -> None:
        """Write tasks like a program that knows only the inbox."""
        with self._lock:
            self._batches += 1
        batch, count = f"i{self._batches}", self._chance.randint(5, 60)
        names = {spelled(batch, b"t%d" % number) for number in range(count)}
        topic, headers = (
            self._site.deployment.topics.name("inbox"),
            [("docllm-batch", batch.encode())],
        )
        # Its lines are unique, so the judge knows when a record became a task.
        lines = [
            task_line(
                number, input={"text": f"Document {number} of {batch} tells of a small thing."}
            )
            for number in range(count)
        ]
        records = [Outgoing(topic, None, orjson.dumps(line), headers) for line in lines]
        try:
            self._site.bus.write(records)
        except (AssertionError, KafkaException):
            self.maybe |= names
        else:
            self.done["inbox"] = self.done.get("inbox", 0) + 1
            with self._lock:
                self.loaded |= names

    def _cancel(self) -> None:
        """Load a batch and cancel it while it runs."""
        path, names = self.batch(self._chance.randint(*BATCH))
        self.load(path, names)
        time.sleep(self._chance.uniform(0, 1))
        self.insist("cancel", "--batch", names[0].partition("/")[0])

    def _replay(self) -> None:
        self.open_guards()
        self.insist("replay", "--all", "--yes")

    def _cancelled_again(self) -> None:
        """Cancel a batch, then replay it."""
        path, names = self.batch(self._chance.randint(*BATCH) // 4)
        self.load(path, names)
        batch = names[0].partition("/")[0]
        self.insist("cancel", "--batch", batch)
        self.insist("replay", "--cancelled", "--batch", batch, "--yes")

    def _look(self) -> None:
        for command in (("status", "--json"), ("dead", "list"), ("guard", "list")):
            self.insist(*command)

"""Faults that raise alerts, and their ends: each scene is one group with its own programs.

A minute of the rules is a second here. A scene says which alerts it raises; whoever plays it checks
that no other alert of its group has burned, and that none burns in the end.

Tested by tests/integration/monitoring/test_alerts.py.
"""

import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from docllm.schemas.task.record.envelope import Outgoing
from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.programs import Program, pause, until
from tests.servers.alertmanager import Receiver
from tests.servers.process import free_ports
from tests.servers.prometheus import Prometheus

AWAY_S = 13.0  # a lease lasts nine seconds without a heartbeat, which is sent every three


@dataclass(frozen=True, slots=True)
class Scene:
    """What a scene does, and the alerts that it raises."""

    name: str
    raises: frozenset[str]
    play: Callable[["Stage"], None]


_NINE_DAYS_AGO = """
UPDATE archive SET verified_at = strftime('%Y-%m-%d %H:%M:%f', 'now', '-9 days') || '000'
"""
# A release is compared by the minutes in which it works beside others: these had ten more of them.
_TEN_MINUTES_MORE = """
WITH RECURSIVE earlier(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM earlier WHERE n < 10)
INSERT INTO release_count (starts_at, group_name, agent_id, release_name, route, succeeded, failed,
cost_micro, last_at) SELECT strftime('%Y-%m-%d %H:%M:00.000000', starts_at,
printf('-%d minutes', 3 * n)), group_name, agent_id, release_name, route, succeeded, failed,
cost_micro, last_at FROM release_count, earlier
"""

PAGES: list[Scene] = []
TICKETS: list[Scene] = []


@dataclass(frozen=True, slots=True)
class Stage:
    """One group, and the Prometheus that watches it."""

    group: Deployment
    prometheus: Prometheus
    receiver: Receiver  # of the messages

    def exporter(self, **environ: str) -> Program:
        """Start an exporter that Prometheus scrapes."""
        arguments = ("exporter", "--group", self.group.group, "--listen", "127.0.0.1:0")
        program = self.group.start(
            "tests.integration.monitoring.fast_exporter", *arguments, **environ
        )
        until(lambda: "/metrics" in program.err or not program.running, "the exporter to listen")
        assert program.running, program.err
        self.prometheus.watch(program.err.split()[-1].removesuffix("/metrics")[len("http://") :])
        return program

    def agent(self, *options: str, **environ: str) -> Program:
        """Start an agent that Prometheus scrapes, and wait until it is alive."""
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        self.prometheus.watch(address)
        program = self.group.agent(*options, DOCLLM_AGENT_HTTP=address, **environ)
        self.says(program, "health and metrics")
        return program

    def says(self, program: Program, words: str, times: int = 1) -> None:
        """Wait until a program's log has these words so many times."""
        self.group.until(lambda: program.err.count(words) >= times, words)

    def burn(self, *alerts: str) -> None:
        """Wait until these alerts of the group burn, and were told: none is that ends at once."""
        self._until(lambda: set(alerts) <= self.prometheus.firing(self.group.group), alerts)
        self._until(lambda: set(alerts) <= self._told(), ("messages of", *alerts))

    def _told(self) -> set[str]:
        group = self.group.group
        return {one.alert for one in self.receiver.messages if one.burns and one.group == group}

    def end(self) -> None:
        """Wait until no alert of the group burns."""
        self._until(lambda: not self.prometheus.firing(self.group.group), ("no alert",))

    def _until(self, true: Callable[[], bool], what: tuple[str, ...]) -> None:
        try:
            until(true, f"{' and '.join(what)} of {self.group.group}", 150)
        except AssertionError as error:
            words = "\n".join(
                f"{program.name}: {program.tail()}" for program in self.group.programs
            )
            burning = self.prometheus.firing(self.group.group)
            raise AssertionError(f"{error}; {burning} burn; {words}") from None

    def write(self, name: str, **lines: str) -> None:
        """Write a section of docllm.toml."""
        path = self.group.folder / "docllm.toml"
        text = "".join(f"{key} = {value}\n" for key, value in lines.items())
        with path.open("a") as file:
            file.write(f"[{name}]\n{text}")

    def load_with_schema(self, count: int) -> None:
        """Load tasks whose answers must fit a schema."""
        schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
        path = self.group.write_lines(task_line(number, schema=schema) for number in range(count))
        self.group.producer("load", str(path))

    @contextmanager
    def locked(self, database: str) -> Iterator[None]:
        """Keep all others from writing into a SQLite file."""
        with self._database(database) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")

    def write_ledger(self, sql: str) -> None:
        """Change rows of the ledger."""
        with self._database("ledger.sqlite") as connection:
            connection.execute(sql)

    @contextmanager
    def unreadable(self) -> Iterator[None]:
        """Take a table from the ledger, so that no reading succeeds."""
        with self._database("ledger.sqlite") as connection:
            connection.execute("ALTER TABLE guard RENAME TO guard_away")
            yield
            connection.execute("ALTER TABLE guard_away RENAME TO guard")

    @contextmanager
    def _database(self, name: str) -> Iterator[sqlite3.Connection]:
        path = Path(self.group.folder, "docllm-data", name)
        connection = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()


def scene(
    kind: list[Scene], *alerts: str
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Add a function to the scenes of a kind."""

    def add(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
        kind.append(Scene(play.__name__, frozenset(f"Docllm{alert}" for alert in alerts), play))
        return play

    return add


@scene(PAGES)
def calm(stage: Stage) -> None:
    """A group that works from the beginning to the end, with some failures and few deaths."""
    stage.write("prices.rehearsal", input_per_mtok="1.0", output_per_mtok="2.0")
    stage.group.use_tiers("1s")
    stage.group.llm(
        "--latency", "0.1-0.5", "--faults", "503=0.05,400=0.03,429=0.03", "--rpm", "100000"
    )
    stage.agent("--slots", "2")
    stage.group.load(150)
    ends = ("succeeded", "dead")
    stage.group.until(
        lambda: sum(stage.group.ledger.counts()[end] for end in ends) == 150, "the end"
    )


@scene(PAGES, "NoAgent", "RouteParked")
def no_agent_then_no_money(stage: Stage) -> None:
    """Nobody works; then somebody does, and the account is empty; then it is not."""
    llm = stage.group.llm("--latency", "0.1", "--faults", "402=1")
    stage.group.load(30)
    stage.burn("DocllmNoAgent")
    stage.agent("--slots", "2")
    stage.burn("DocllmRouteParked")
    llm.dial()
    stage.group.run("agent", "resume", "default", "--group", stage.group.group)
    stage.group.until_settled(30)
    stage.end()


@scene(PAGES, "Stalled")
def calls_that_last(stage: Stage) -> None:
    """One slot, whose call lasts longer than anybody should wait."""
    stage.group.llm("--latency", "32")
    stage.agent("--slots", "1")
    stage.group.load(2)
    stage.burn("DocllmStalled")
    stage.group.until_settled(1)
    stage.end()


@scene(PAGES, "OrdersStuck", "ExporterStale", "ExporterDown")
def servers_away(stage: Stage) -> None:
    """The bus takes no records; then the ledger cannot be read; then the exporter is gone."""
    agent = stage.agent("--rehearsal")
    with stage.locked("bus.sqlite"):
        path = stage.group.write_lines(task_line(number) for number in range(3))
        stage.group.run("producer", "load", str(path), "--group", stage.group.group)
        stage.burn("DocllmOrdersStuck")
    stage.group.until_settled(3)
    stage.end()
    agent.signal(signal.SIGTERM)
    agent.wait()
    with stage.unreadable():
        stage.burn("DocllmExporterStale")
    stage.end()
    next(one for one in stage.group.programs if "exporter" in one.name).end()
    stage.burn("DocllmExporterDown")
    stage.exporter()
    stage.end()


@scene(TICKETS, "LeaseChurn")
def leases_lost(stage: Stage) -> None:
    """The ledger takes no writes for longer than a lease, again and again."""
    agent = stage.agent("--rehearsal")
    for times in range(1, 4):
        with stage.locked("ledger.sqlite"):
            pause(AWAY_S)
        stage.says(agent, "it goes on as agent", times)
    stage.burn("DocllmLeaseChurn")
    stage.end()


@scene(TICKETS, "RouteStopped")
def provider_away(stage: Stage) -> None:
    """The provider fails for a while."""
    stage.group.use_tiers("1s")
    llm = stage.group.llm("--latency", "0.1", "--faults", "503=1")
    stage.agent("--slots", "2")
    stage.group.load(20)
    stage.burn("DocllmRouteStopped")
    llm.dial()
    stage.group.until_settled(20)
    stage.end()


@scene(TICKETS, "RateLimited")
def provider_refuses(stage: Stage) -> None:
    """The provider refuses more than half of the calls."""
    llm = stage.group.llm("--latency", "0.1", "--faults", "429=0.4,retry_after=0")
    stage.agent("--slots", "4")
    stage.group.load(1000)
    stage.burn("DocllmRateLimited")
    llm.dial()
    stage.end()


@scene(TICKETS, "DeadBurst", "Waste", "CostBurn")
def answers_of_no_use(stage: Stage) -> None:
    """A third of the answers is paid for, and fits no schema."""
    stage.write("prices.rehearsal", input_per_mtok="1e6", output_per_mtok="1e6")
    stage.group.use_tiers("1s", max_attempts=1)
    llm = stage.group.llm("--latency", "0.05", "--faults", "wrong_schema=0.4")
    stage.agent("--slots", "8")
    stage.load_with_schema(3000)
    stage.burn("DocllmDeadBurst")
    stage.burn("DocllmCostBurn")
    stage.burn("DocllmWaste")
    llm.dial()
    stage.end()


@scene(TICKETS, "GuardRaised")
def batch_refused(stage: Stage) -> None:
    """The provider refuses all tasks of a batch, which are held back."""
    llm = stage.group.llm("--latency", "0.1", "--faults", "400=1")
    stage.agent("--slots", "2")
    stage.group.load(60)
    stage.burn("DocllmGuardRaised")
    llm.dial()
    stage.group.run("producer", "guard", "open", "tasks", "--group", stage.group.group)
    stage.end()


@scene(TICKETS, "InboxUnread", "QuarantineGrows", "VersionsMixed")
def strangers(stage: Stage) -> None:
    """Garbage waits in the inbox while a task of the group runs, and two versions run."""
    group = stage.group
    stage.write("inbox", max_backlog="1")
    group.llm("--latency", "25")
    stage.agent()
    other = stage.exporter(EXPORTER_VERSION="0.0.1")
    group.load(1)
    group.until(lambda: group.ledger.counts()["processing"], "the call to begin")
    inbox = group.topics.name("inbox")
    group.bus.write([Outgoing(inbox, None, b"garbage", []) for _ in range(20)])
    stage.burn("DocllmInboxUnread")
    stage.burn("DocllmQuarantineGrows")
    stage.burn("DocllmVersionsMixed")
    other.end()
    stage.end()


@scene(TICKETS, "TierLate", "Stalled")
def attempts_that_wait(stage: Stage) -> None:
    """All tasks have failed once, and the only slot has a call that hangs."""
    stage.write("llm", timeout_s="40")
    stage.group.use_tiers("1s")
    llm = stage.group.llm("--latency", "0.1", "--faults", "wrong_schema=1")
    stage.agent("--slots", "1")
    stage.load_with_schema(3)
    stage.group.until(lambda: stage.group.ledger.counts()["retrying"] == 3, "three failures")
    llm.dial("hang=1")
    stage.burn("DocllmTierLate", "DocllmStalled")
    llm.dial()
    stage.group.until_settled(3)
    stage.end()


@scene(TICKETS, "ArchiveLate")
def archive_of_last_week(stage: Stage) -> None:
    """The last archive is nine days old, by its row, and tasks end; then a batch is archived."""
    group = stage.group
    group.llm("--latency", "0")
    stage.agent("--slots", "2")
    batches = ("first", "second")
    for number, batch in enumerate(batches, 1):
        group.load(3, batch)
        group.until_settled(3 * number)
        if batch == batches[0]:
            group.producer("archive", "--batch", batch, "--to", f"{group.folder}")
            stage.write_ledger(_NINE_DAYS_AGO)
    stage.burn("DocllmArchiveLate")
    group.producer("archive", "--batch", batches[-1], "--to", f"{group.folder}")
    stage.end()


@scene(TICKETS, "ReleaseWorse")
def release_that_fails(stage: Stage) -> None:
    """Half of the attempts of one release fail, beside another one; then nobody counts them."""
    group = stage.group
    group.use_tiers("1s")
    group.llm("--latency", "0.05", "--faults", "wrong_schema=0.5")
    worse = stage.agent("--slots", "2", DOCLLM_AGENT_RELEASE="worse")
    group.llm("--latency", "0.05")
    stage.agent("--slots", "2", DOCLLM_AGENT_RELEASE="better")
    stage.load_with_schema(150)
    group.until_settled(150)
    worse.end()
    stage.write_ledger(_TEN_MINUTES_MORE)
    stage.burn("DocllmReleaseWorse")
    stage.write_ledger("DELETE FROM release_count")
    stage.end()

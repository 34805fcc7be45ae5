"""One installation under faults: servers with doors, an LLM, and agents in their seats.

One thread that lives as long as the site starts the programs, because a child dies with the thread
that started it.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from confluent_kafka import KafkaException
from sqlalchemy.exc import SQLAlchemyError

from tests.faults import history, skew
from tests.faults.doors import Door
from tests.faults.faultlog import FaultLog
from tests.faults.proxy import Proxy
from tests.faults.seats import Seat, Seats
from tests.faults.servers import Disk, DoorKafka, can_mount
from tests.integration.support.buses import KafkaBus
from tests.integration.support.installations import group_on
from tests.integration.support.programs import Program, RehearsalLLM
from tests.servers import Redis, database_server
from tests.servers.collector import collecting
from tests.servers.process import free_port

if TYPE_CHECKING:
    from tests.faults.scrapes import Scrapes
    from tests.faults.traffic import Traffic

Result = TypeVar("Result")

AGENTS, REAPER, TOOLS = ("agent1", "agent2", "agent3"), "reaper", "tools"
EXPORTER = "exporter"
PARTS = ("kafka", "database", "redis", "llm")
SKEWED = AGENTS[-1]  # the agent whose clock can jump
LATENCY = "0.1-1.2"
SLOTS = "16"
ANSWER_S = 15.0
CALL_S = 6  # the agents' time limit for a call
# Of each seat's account, in some runs. The LLM enforces the sum of them, and lets the calls of so
# many seconds come at once.
LIMITS, LIMIT_WINDOW_S = {"rpm": 360, "in_flight": 10}, 6
CAPPED, CAP = "capped", 4  # a tenant of a tenth of the tasks, and its calls at once
TOML = f"""\
[llm]
timeout_s = {CALL_S}
[agent]
drain_timeout_s = 4
sweep_slack_s = 5
compact_after_s = 60
park_probe_s = 2
[guard]
probe_s = 3
[retry]
tiers = ["2s", "5s", "15s"]
max_attempts = 6
[prices.rehearsal]
input_per_mtok = 1.0
output_per_mtok = 4.0
"""
LIMITS_TOML = f"""\
[tenants.{CAPPED}]
in_flight = {CAP}
[routes.limits]
model = "rehearsal"
rpm = {LIMITS["rpm"]}
in_flight = {LIMITS["in_flight"]}
"""


class Site:
    """Everything that a fault can hit; `close` ends all that was started."""

    traffic: "Traffic"
    scrapes: "Scrapes"

    def __init__(self, *, folder: Path, faultlog: FaultLog, limited: bool = False) -> None:
        self.folder = folder
        self.limited = limited
        self.log = faultlog
        self._stack = ExitStack()
        self._spawner = ThreadPoolExecutor(1, thread_name_prefix="spawner")
        self.proxy = self._stack.enter_context(Proxy())
        self.ports = {(seat, part): free_port() for seat in (*AGENTS, TOOLS) for part in PARTS}
        self.kafka = DoorKafka(
            folder=folder / "kafka",
            doors={seat.upper(): self.ports[seat, "kafka"] for seat in (*AGENTS, TOOLS)},
        )
        self.disk = Disk(folder / "database" / "data") if can_mount() else None
        self.database = database_server()(folder=folder / "database")
        self.redis = Redis(folder=folder / "redis")
        self.collector = self._stack.enter_context(collecting())
        self.llms: list[RehearsalLLM] = []
        self._llm_port = free_port()
        self.pages = {seat: free_port() for seat in (*AGENTS, EXPORTER)}  # of metrics

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start servers and programs; return when agents may work."""
        servers = (self.kafka, self.database, self.redis)
        for server in servers:
            self._stack.callback(server.close)
        with ThreadPoolExecutor(len(servers)) as pool:
            list(pool.map(lambda server: server.start(), servers))
        self.doors = {place: self._door(*place) for place in self.ports}
        self.deployment = group_on(
            self.kafka, self.database, self.redis, folder=self.folder / "programs"
        )
        self._stack.callback(lambda: self.spawn(self.deployment.close).result())
        otel = f'[otel]\nendpoint = "{self.collector.url}"\n'
        limits = LIMITS_TOML if self.limited else ""
        (self.deployment.folder / "docllm.toml").write_text(TOML + otel + limits)
        self.start_llm()
        for command in (
            ["migrate"],
            ["topics", "apply", "--partitions", "6", "--replication-factor", "1"],
        ):
            self.tool(*command).wait()
        history.install(self.ledger_url)
        seats = [Seat(name) for name in (*AGENTS, REAPER, EXPORTER)]
        self.seats = Seats(
            seats=seats, start=self._sit, ledger=self.deployment.ledger, faultlog=self.log
        )

    def start_llm(self) -> RehearsalLLM:
        """Start the LLM on the same port each time, with a log of its own."""

        def start() -> RehearsalLLM:
            options = ["--port", str(self._llm_port), "--latency", LATENCY]
            if self.limited:
                whole = {name: str(len(AGENTS) * limit) for name, limit in LIMITS.items()}
                options += ["--limit-window", str(LIMIT_WINDOW_S)]
                options += ["--rpm", whole["rpm"], "--in-flight", whole["in_flight"]]
            llm = RehearsalLLM(
                *options,
                folder=self.deployment.folder,
                environ=self.deployment.environ,
                name=f"llm{len(self.llms)}",
            )
            self.deployment.programs.append(llm)
            return llm

        self.llms.append(self.spawn(start).result())
        return self.llms[-1]

    @property
    def llm(self) -> RehearsalLLM:
        """Return the LLM that was started last."""
        return self.llms[-1]

    @property
    def ledger_url(self) -> str:
        """Return the address of the ledger's database, without a door."""
        return self.deployment.environ["DOCLLM_DATABASE_URL"]

    @property
    def bus(self) -> KafkaBus:
        """Return Kafka from outside, through a new client.

        An earlier client may still wait for a broker that was killed.
        """
        return KafkaBus(self.kafka.bootstrap)

    def environ(self, seat: str) -> dict[str, str]:
        """Return the environment of a program that uses the doors of a seat."""
        direct, ports = self.deployment.environ, {part: self.ports[seat, part] for part in PARTS}
        settings = {
            "DOCLLM_KAFKA_BOOTSTRAP": f"127.0.0.1:{ports['kafka']}",
            "DOCLLM_DATABASE_URL": direct["DOCLLM_DATABASE_URL"].replace(
                f":{self.database.port}/", f":{ports['database']}/"
            ),
            "DOCLLM_REDIS_URL": direct["DOCLLM_REDIS_URL"].replace(
                f":{self.redis.port}/", f":{ports['redis']}/"
            ),
            "DOCLLM_LLM_BASE_URL": f"http://127.0.0.1:{ports['llm']}/{seat}/v1",
            "DOCLLM_LLM_MODEL": "rehearsal",
        }
        return settings | (skew.environ(self.folder) if seat == SKEWED else {})

    def agent(self, seat: str, *options: str, **environ: str) -> Program:
        """Start an agent that uses the doors of a seat, beside the seat's own agent."""
        return self.program(
            "agent",
            "--group",
            self.deployment.group,
            "--slots",
            SLOTS,
            *options,
            environ=self.environ(seat) | environ,
        )

    def tool(self, *arguments: str) -> Program:
        """Start a command of the producer that uses the tools' doors."""
        return self.program(
            "producer", *arguments, "--group", self.deployment.group, environ=self.environ(TOOLS)
        )

    def direct(self, *arguments: str) -> Program:
        """Start a command of the producer without doors."""
        return self.program("producer", *arguments, "--group", self.deployment.group, environ={})

    def members(self) -> int:
        """Return how many members the group of the main topic has."""
        group, bus = self.deployment.topics.consumer_group("tasks"), self.bus
        described = bus.admin.describe_consumer_groups([group])[group]
        return len(described.result(ANSWER_S).members)

    def program(self, *arguments: str, environ: Mapping[str, str]) -> Program:
        """Start a program of docllm."""
        name = "-".join(argument for argument in arguments[:2] if not argument.startswith("--"))
        return self.spawn(lambda: self.deployment.start(*arguments, name=name, **environ)).result()

    def spawn(self, work: Callable[[], Result]) -> Future[Result]:
        """Run a function that starts or ends programs."""
        return self._spawner.submit(work)

    def doors_of(self, part: str, seat: str = "") -> list[Door]:
        """Return the doors to a server, of one seat or of all."""
        return [
            door for (owner, to), door in self.doors.items() if to == part and seat in {"", owner}
        ]

    def close(self) -> None:
        """End all servers and programs."""
        self._stack.close()
        self._spawner.shutdown()

    def _door(self, seat: str, part: str) -> Door:
        behind = {
            "kafka": self.kafka.behind[seat.upper()],
            "database": self.database.port,
            "redis": self.redis.port,
            "llm": self._llm_port,
        }
        return self.proxy.open(f"{seat}:{part}", self.ports[seat, part], behind[part])

    def _sit(self, seat: str) -> Program:
        if seat == REAPER:
            return self.program(
                "agent", "reaper", "--group", self.deployment.group, environ=self.environ(TOOLS)
            )
        address = f"127.0.0.1:{self.pages[seat]}"
        if seat == EXPORTER:
            return self.tool("exporter", "--listen", address)
        return self.agent(seat, DOCLLM_AGENT_HTTP=address)


def quiet(look: Callable[[], Any]) -> Any:
    """Return the result of a look at a server, None while another fault has it."""
    try:
        return look()
    except (SQLAlchemyError, KafkaException, TimeoutError):
        return None


def pause(delay_s: float) -> None:
    """Wait."""
    time.sleep(delay_s)


def wait_for(true: Callable[[], object], within_s: float, every_s: float = 0.1) -> bool:
    """Return whether a condition became true in time."""
    end_s = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end_s:
            return False
        time.sleep(every_s)
    return True

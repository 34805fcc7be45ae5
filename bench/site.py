"""Installations to measure: fresh groups on servers, or fresh folders with embedded parts.

The servers are Apache Kafka and MariaDB.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from bench.program import ROOT, Program, Used, until
from docllm.schemas.ledger.database import Database
from docllm.schemas.settings.sources import ledger_url, load_config
from tests.servers import Kafka, MariaDB

Result = TypeVar("Result")
GROUP = "docllm"


@dataclass(frozen=True, slots=True)
class Site:
    """One empty installation. `parts` names what it runs on."""

    parts: str
    folder: Path
    environ: Mapping[str, str]

    @property
    def embedded(self) -> bool:
        """Return whether it needs no server."""
        return "DOCLLM_KAFKA_BOOTSTRAP" not in self.environ

    def run(self, *arguments: str, timeout_s: float = 900) -> Used:
        """Run a program to its end."""
        with self.start(*arguments) as program:
            return program.wait(timeout_s)

    def start(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Program:
        """Start a program."""
        name = f"{arguments[0]}-{secrets.token_hex(3)}"
        return Program(
            *arguments, folder=self.folder, environ={**self.environ, **(environ or {})}, name=name
        )

    def load(self, path: Path) -> Used:
        """Load a file of tasks as a batch."""
        return self.run("producer", "load", str(path), "--group", self.group)

    def agent(self, url: str, *options: str) -> Program:
        """Start an agent that calls the LLM at `url`."""
        return self.start(
            "agent",
            "--group",
            self.group,
            *options,
            environ={"DOCLLM_LLM_BASE_URL": url, "DOCLLM_LLM_MODEL": "rehearsal"},
        )

    @property
    def group(self) -> str:
        """Return the consumer group: one of its own on shared servers."""
        return GROUP if self.embedded else self.folder.name

    def ask(self, question: Callable[[Connection], Result]) -> Result:
        """Return the ledger's answer to a question."""
        database = Database(
            ledger_url(load_config(flags={}, environ=self.environ, cwd=self.folder))
        )
        try:
            return database.run_singly(question)
        finally:
            database.close()


class Sites:
    """Makes installations below `folder`; those on Kafka share its servers."""

    def __init__(self, *, folder: Path, kafka: Kafka, mariadb: MariaDB) -> None:
        self.folder = folder
        self._kafka = kafka
        self._mariadb = mariadb

    @property
    def bootstrap(self) -> str:
        """Return the address of the brokers."""
        return self._kafka.bootstrap

    def both(self) -> Iterator[Site]:
        """Make one installation of each kind."""
        yield self.on_kafka()
        yield self.embedded()

    def embedded(self) -> Site:
        """Make one installation on the embedded parts."""
        return embedded(self.folder)

    def on_kafka(self) -> Site:
        """Make one installation on the servers."""
        folder = _fresh(self.folder, "kafka")
        servers = {
            "DOCLLM_KAFKA_BOOTSTRAP": self._kafka.bootstrap,
            "DOCLLM_DATABASE_URL": self._mariadb.create_database(folder.name),
        }
        site = Site("Kafka, MariaDB", folder, environment() | servers)
        site.run("producer", "migrate")
        site.run("producer", "topics", "apply", "--group", site.group, "--replication-factor", "1")
        return site


def embedded(folder: Path) -> Site:
    """Make an installation on the embedded parts below `folder`."""
    return Site("embedded", _fresh(folder, "embedded"), environment())


def _fresh(parent: Path, kind: str) -> Path:
    folder = parent / f"{kind}{secrets.token_hex(4)}"
    folder.mkdir()
    return folder


def environment() -> dict[str, str]:
    """Return an environment in which no variable of the present one configures docllm."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ
    }
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@contextmanager
def llm(folder: Path, *options: str) -> Iterator[tuple[str, Program]]:
    """Run a rehearsal LLM; yield its base URL and its process."""
    name = f"llm-{secrets.token_hex(3)}"
    with Program(
        "agent", "rehearsal-llm", *options, folder=folder, environ=environment(), name=name
    ) as program:
        until(lambda: program.said.endswith("/v1\n") or program.ended(), 30, "the rehearsal LLM")
        yield program.said.strip(), program

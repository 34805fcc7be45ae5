"""`exporter` waits for its ledger, but not when waiting cannot help."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from docllm.producer.__main__ import main
from docllm.producer.cli import exporter
from docllm.producer.metrics.exporter import Exporter, GroupReaders
from docllm.producer.metrics.scale import ScaleLimits
from docllm.schemas.errors import DeniedError, DocllmError, UnreachableError, UnsafeStateError
from docllm.schemas.runtime import outage
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.topics import Topics
from tests.support.clock import HandClock


class Reads(Exception):  # noqa: N818 - the end of the test
    """The exporter has begun to read."""


class Metrics(Exporter):
    """Reads nothing."""

    async def read_forever(self, readers: GroupReaders) -> None:
        assert readers.topics == Topics("g")
        raise Reads


def read(monkeypatch: pytest.MonkeyPatch, failures: Iterator[DocllmError]) -> None:
    """Read a ledger whose opening fails in these ways, and then works."""

    @asynccontextmanager
    async def opened(*_: object, **__: object) -> AsyncIterator[Any]:
        if failure := next(failures, None):
            raise failure
        yield SimpleNamespace(transactions="transactions", admin="admin", topics=Topics("g"))

    monkeypatch.setattr(exporter, "opened", opened)
    monkeypatch.setattr(exporter, "EVERY_S", 0.0)
    metrics = Metrics(
        group="g", config=Config(), scale_limits=ScaleLimits(), clock=HandClock(), schema="0"
    )
    asyncio.run(exporter._read(metrics, Config(), "g"))


def test_it_reads_once_the_ledger_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the ledger did not answer before."""
    with pytest.raises(Reads):
        read(monkeypatch, iter([UnreachableError("away")] * 3))


@pytest.mark.parametrize(
    "failure",
    [UnreachableError("refused", may_pass=False), DeniedError("no"), UnsafeStateError("old")],
)
def test_it_ends_when_waiting_cannot_help(
    monkeypatch: pytest.MonkeyPatch, failure: DocllmError
) -> None:
    """A refused login, a missing right and another schema need a person."""
    with pytest.raises(type(failure)):
        read(monkeypatch, iter([failure]))


def test_a_command_logs_that_a_server_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that names an outage must say that it is over."""
    monkeypatch.chdir(tmp_path)

    assert main(["replay", "--list"]) == 0

    assert logging.getLogger(outage.__name__).isEnabledFor(logging.INFO)

"""The bus file for adapters: the errors while it does not answer."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from docllm.producer.bus.embedded import executor as bus_executor
from docllm.producer.bus.embedded import file as bus_file
from docllm.producer.bus.embedded.admin import EmbeddedTopicAdmin
from docllm.producer.bus.embedded.executor import BusExecutor
from docllm.producer.bus.embedded.file import BusFile
from docllm.schemas.errors import UnreachableError
from docllm.schemas.runtime.executors import InlineExecutor


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the file like a program that is stopped in the middle of a transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


async def test_a_file_that_is_locked_for_long_is_a_server_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is locked for long raises the error of a server that does not answer.

    As a bug of ours, it would end an agent whose minutely trim meets it. As a server's state, the
    trim is retried a minute later.
    """
    monkeypatch.setattr(bus_file, "_BUSY_S", 0.01)
    monkeypatch.setattr(bus_executor, "LOCKED_S", 0.0)
    path = tmp_path / "bus.sqlite"
    admin = EmbeddedTopicAdmin(path)
    try:
        await admin.create("t", 1, None)
        with (
            held(path),
            pytest.raises(
                UnreachableError,
                match=r"bus\.sqlite does not answer: database is locked; check",
            ),
        ):
            await admin.trim({("t", 0): 0})
        await admin.trim({("t", 0): 0})
    finally:
        await admin.close()


def test_a_call_waits_longer_than_one_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine other writers may have the lock for longer than one wait."""
    monkeypatch.setattr(bus_file, "_BUSY_S", 0.01)
    path = tmp_path / "bus.sqlite"
    BusFile(path).close()
    tries = []

    async def test() -> str:
        executor = BusExecutor(path, executor=InlineExecutor())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")

            def call(file: BusFile) -> str:
                tries.append(file)
                if len(tries) == 3:
                    other.rollback()
                with file.write():
                    return "written"

            try:
                return await executor.run(call)
            finally:
                await executor.close()

    assert asyncio.run(test()) == "written"


async def test_a_statement_that_breaks_a_rule_of_the_file_stays_a_bug_of_ours(
    tmp_path: Path,
) -> None:
    """A broken rule of the file is a bug of ours, so nobody has to check a server."""
    executor = BusExecutor(tmp_path / "bus.sqlite", executor=None)
    try:
        with pytest.raises(sqlite3.IntegrityError):
            await executor.run(
                lambda file: file.one(
                    "INSERT INTO topic VALUES ('t', NULL, 1, '{}') RETURNING name"
                )
            )
    finally:
        await executor.close()

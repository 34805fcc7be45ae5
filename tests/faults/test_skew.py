"""A clock that jumps does so for the Kafka client's waits too."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults import skew

WAITS_S, HANGS_S, HOUR_S = 1.0, 30.0, 3600.0
POLL = """
import sys, time
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "any", "log_level": 0})
began_s, used_s = time.monotonic(), time.process_time()
print(time.time(), flush=True)
consumer.poll(float(sys.argv[1]))
print(time.monotonic() - began_s, time.process_time() - used_s, flush=True)
"""
WAIT = """
import ctypes, sys, time
libc = ctypes.CDLL(None)
condition, mutex = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
libc.mtx_lock(mutex)
print(time.time(), flush=True)
libc.cnd_timedwait(condition, mutex, (ctypes.c_long * 2)(int(time.time() + float(sys.argv[1])), 0))
print("ended", flush=True)
"""


@contextmanager
def program(source: str, folder: Path, for_s: float) -> "Iterator[subprocess.Popen[str]]":
    """Return a program that uses the clock of a folder and waits once."""
    command, environ = [sys.executable, "-c", source, str(for_s)], os.environ | skew.environ(folder)
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("hours", [-21, 0, 21])
def test_the_kafka_client_waits_as_long_as_it_should_by_a_clock_that_is_wrong(
    tmp_path: Path, hours: int
) -> None:
    skew.jump(tmp_path, hours * HOUR_S)
    with program(POLL, tmp_path, WAITS_S) as polling:
        output, _ = polling.communicate(timeout=HANGS_S)

    told_s, waited_s, used_s = (float(word) for word in output.split())
    away_s = told_s - (tmp_path / skew.FILE).stat().st_mtime
    assert abs(away_s - hours * HOUR_S) < HANGS_S
    assert waited_s >= WAITS_S * 0.9
    assert used_s < waited_s / 2


def test_a_wait_ends_when_the_clock_is_set_past_its_end(tmp_path: Path) -> None:
    with program(WAIT, tmp_path, HOUR_S) as waiting:
        assert waiting.stdout is not None
        waiting.stdout.readline()
        skew.jump(tmp_path, 2 * HOUR_S)
        output, _ = waiting.communicate(timeout=HANGS_S)

    assert output == "ended\n"

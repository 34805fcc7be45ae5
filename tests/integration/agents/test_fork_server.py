"""A fork of the fork server does what a new program does."""

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from docllm.schemas.runtime import crash
from tests.integration.support import programs
from tests.integration.support.fork_server import ForkServer, Start
from tests.integration.support.programs import Program, environment, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks end with their server there")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer(environment())
    yield server
    server.close()


@pytest.mark.parametrize(
    "command",
    [
        "producer --version",
        "producer lod",
        "producer status --json",
        "agent --until-done",
        "agent reaper --processes 2",
        "docllm check",
    ],
)
def test_a_fork_ends_as_a_new_program_does(
    command: str, server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code and output are the same, in a folder and with settings of its own."""
    monkeypatch.setattr(programs, "fork_server", lambda: server)
    environ = environment(DOCLLM_TENANT_CAP="many") if "reaper" in command else environment()
    ends = []
    for forks in (True, False):
        monkeypatch.setattr(programs, "FORKS", forks)
        program = Program(command.split(), folder=tmp_path, environ=environ, name=str(forks))
        ends.append((program.wait(), program.out, program.err))

    assert ends[0] == ends[1]


def test_a_fork_ends_by_a_signal_or_with_its_server(tmp_path: Path) -> None:
    """A killed fork has the signal's number, and no fork outlives the server."""
    server = ForkServer(environment())
    killed, left = (
        server.start(
            Start(
                ("docllm", "agent", "rehearsal-llm"),
                tmp_path,
                environment(),
                tmp_path / f"{name}.out",
                tmp_path / f"{name}.err",
            )
        )
        for name in ("killed", "left")
    )
    until((tmp_path / "left.out").read_text, "a fork to listen")
    assert left.poll() is None

    killed.send_signal(signal.SIGKILL)
    with ThreadPoolExecutor() as threads:
        codes = list(threads.map(lambda _: killed.wait(60), range(4)))
    assert codes == [-signal.SIGKILL] * 4

    process = os.pidfd_open(left.pid)
    server.close()
    until(lambda: not Path(f"/proc/{left.pid}").exists(), "the end of a fork")
    os.close(process)


def test_a_fork_dies_at_its_crash_point(server: ForkServer, tmp_path: Path) -> None:
    """The point is read from the fork's own environment."""
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "prompt": "Do it."}\n')
    out, err = tmp_path / "out", tmp_path / "err"
    environ = environment(**{crash.VARIABLE: "load.accepted"})

    fork = server.start(Start(("docllm", "load", "tasks.jsonl"), tmp_path, environ, out, err))

    assert fork.wait(60) == -signal.SIGKILL, err.read_text()


def test_what_is_read_while_code_is_loaded_needs_a_new_program(server: ForkServer) -> None:
    """Settings may differ, other variables may not."""
    assert server.fits(environment(DOCLLM_LLM_MODEL="m"))
    assert not server.fits(environment(PYTHONUTF8="0"))
    assert not server.fits({})

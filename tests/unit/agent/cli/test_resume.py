"""`docllm agent resume ROUTE` on embedded parts in an empty folder."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from docllm.agent.cli import parser as agent
from docllm.agent.cli import resume

HERE = Path(__file__).parents[4]
PROGRAM = [sys.executable, "-m", "agent", "resume", "default"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder with one configured route."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docllm.toml").write_text('[routes.fast]\nmodel = "fast-8b"\n')


@pytest.mark.parametrize("route", ["default", "fast"])
def test_a_configured_route_can_be_resumed(route: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A configured route can be resumed; only agents know whether it was closed.

    The message says what will happen.
    """
    assert agent.main(["resume", route, "--group", "g"]) == 0

    assert (
        capsys.readouterr().out
        == f"route {route} of group g: running agents call it again within three seconds, "
        "first with one call\n"
    )


def test_an_unknown_route_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown route is exit code 2 with the known routes."""
    assert agent.main(["resume", "fsat"]) == 2

    assert (
        capsys.readouterr().err
        == "error: group docllm has no route 'fsat'; known are: default, fast\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_an_unwritable_standard_output_is_a_usage_error() -> None:
    """If standard output cannot be written, the exit code is 2 with advice, no traceback."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            PROGRAM,
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(HERE)},
        )

    assert ended.returncode == 2
    assert (
        ended.stderr
        == "error: standard output cannot be written: No space left on device; write to a "
        "disk with free space\n"
    )


def test_a_bug_of_ours_is_exit_5(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bug of ours is exit code 5, as in every other command."""

    def broken(_argument: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(resume, "RouteNames", broken)

    assert agent.main(["resume", "default"]) == 5
    assert capsys.readouterr().err.endswith("RuntimeError: a bug\n")


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_one_that_waits_for_a_database_is_interrupted_without_a_traceback(
    asked: signal.Signals,
) -> None:
    """Ctrl-C during a wait for the database is exit code 130, without a traceback.

    The server takes the connection and never answers.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"mysql://u:p@127.0.0.1:{server.getsockname()[1]}/d"
        environ = {
            "PYTHONPATH": str(HERE),
            "DOCLLM_KAFKA_BOOTSTRAP": "127.0.0.1:1",
            "DOCLLM_DATABASE_URL": url,
        }
        with (
            subprocess.Popen(PROGRAM, stderr=subprocess.PIPE, text=True, env=environ) as program,
            server.accept()[0],
        ):
            program.send_signal(asked)
            errors = program.communicate(timeout=30)[1]

    assert (program.returncode, errors) == (130, "")

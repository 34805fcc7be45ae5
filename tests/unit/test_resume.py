"""`python -m agent resume ROUTE`, as a person types it: on embedded parts in an empty folder."""

from pathlib import Path

import pytest

from agent import cli as agent


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in an empty folder, with one route configured."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docllm.toml").write_text('[routes.fast]\nmodel = "fast-8b"\n')


@pytest.mark.parametrize("route", ["default", "fast"])
def test_a_configured_route_can_be_resumed(route: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what will happen; whether the route was closed is known to the agents alone."""
    assert agent.main(["resume", route, "--group", "g"]) == 0

    assert capsys.readouterr().out == f"route {route} of group g: agents that run take calls on it again within three seconds, one first\n"


def test_an_unknown_route_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With exit 2, and with the routes that there are."""
    assert agent.main(["resume", "fsat"]) == 2

    assert capsys.readouterr().err == "error: group docllm has no route 'fsat'; known are: default, fast\n"

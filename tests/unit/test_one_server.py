"""The unit for systemd, and the page that shows how to use it."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from docllm.agent.cli.parser import run_parser
from docllm.producer.cli.parser import parser
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.sources import load_config
from tests.conftest import absent
from tests.support.leaving import LEAVING_S

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy/systemd/docllm-agent.service"
PAGE = (ROOT / "docs/how-to/one-server.md").read_text("utf-8")


def service() -> configparser.SectionProxy:
    """Return the section of the service."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.read(UNIT)
    return unit["Service"]


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """No line of the unit is unknown to systemd, or wrong."""
    if shutil.which("systemd-analyze") is None:
        absent("systemd-analyze (Debian package systemd) is not installed")
    there = tmp_path / UNIT.name
    program = shlex.split(service()["ExecStart"])[0]
    there.write_text(UNIT.read_text().replace(program, "/bin/true"))

    verified = subprocess.run(
        ["systemd-analyze", "verify", there], capture_output=True, text=True, check=False
    )

    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_agent_takes_the_options_of_the_unit() -> None:
    """The unit starts an agent with options that its parser knows."""
    _, command, *options = shlex.split(service()["ExecStart"])

    assert command == "agent"
    assert run_parser().parse_args(options).config == "/etc/docllm/docllm.toml"


def test_the_unit_gives_an_agent_time_to_drain() -> None:
    """Systemd kills an agent only after its drain and the time to leave."""
    assert (
        int(service()["TimeoutStopSec"]) > Config(data_dir=Path()).agent.drain_timeout_s + LEAVING_S
    )


@pytest.mark.parametrize(
    "block", re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
)
def test_the_settings_of_the_page_are_taken(block: str, tmp_path: Path) -> None:
    """Both files that the page shows can be used."""
    (tmp_path / "docllm.toml").write_text(block)

    load_config(flags={}, environ={}, cwd=tmp_path)


def test_cron_takes_the_line_of_the_page() -> None:
    """It names the user, the program and the settings of the unit, and options that exist."""
    found = re.search(r"`([\d* ]+) (\w+) (/opt/docllm/bin/docllm) (replay [^`]+)`", PAGE)
    assert found is not None
    times, user, program, arguments = found.groups()
    options = parser().parse_args(shlex.split(arguments))

    assert len(times.split()) == 5
    assert user == service()["User"]
    assert program == shlex.split(service()["ExecStart"])[0]
    assert options.config == "/etc/docllm/docllm.toml"
    assert options.yes

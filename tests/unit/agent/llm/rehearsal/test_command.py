"""The options of the rehearsal LLM, and its life as a child process."""

import asyncio
from pathlib import Path

import pytest

from docllm.agent.cli.parser import main
from docllm.agent.llm.rehearsal.command import rehearsal_child
from docllm.agent.ports import Reply
from docllm.schemas.errors import ConfigError
from tests.unit.agent.llm.rehearsal.test_wire import _ended


@pytest.mark.parametrize(
    "options", [["--faults", "x=1"], ["--latency", "fast"], ["--latency", "2-1"]]
)
def test_options_that_are_wrong(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong option is exit code 2 with the right form."""
    assert main(["rehearsal-llm", *options]) == 2
    assert capsys.readouterr().err


def test_options_with_an_open_quote_are_usage() -> None:
    """Options with an open quote are a usage error, and nothing is started."""
    with pytest.raises(ConfigError, match="--rehearsal-options"), rehearsal_child("--latency '1"):
        pass


def test_an_invalid_port_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """An invalid port is refused. The rehearsal LLM used to listen on what was left of it."""
    with pytest.raises(SystemExit) as ended:
        main(["rehearsal-llm", "--port", "99999"])

    assert ended.value.code == 2
    assert "'99999' is not a port" in capsys.readouterr().err


def test_an_address_of_ipv6_is_one_that_can_be_called() -> None:
    """An IPv6 address stands in brackets; otherwise its last number would be the port."""
    if "00000000000000000000000000000001" not in Path("/proc/net/if_inet6").read_text():
        pytest.skip("no IPv6 here")

    with rehearsal_child("--host ::1 --latency 0") as url:
        reply = asyncio.run(_ended(url))

    assert url.startswith("http://[::1]:")
    assert isinstance(reply, Reply)

"""`serve`: what keeps it from starting, each with what to do."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from docllm.producer.cli.parser import parser
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.sources import load_config


def serving(folder: Path, *options: str, **environ: str) -> int:
    """Run the command, which is expected not to serve."""
    parsed = parser().parse_args(["serve", *options])
    config = load_config(flags={}, environ=environ, cwd=folder)
    return int(asyncio.run(parsed.run(config, parsed)))


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("docllm.producer.serve.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)

    with pytest.raises(ConfigError, match=r"pip install 'docllm\[serve\]'"):
        serving(tmp_path)


def test_an_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set DOCLLM_HTTP_TOKEN"):
        serving(tmp_path, "--listen", "0.0.0.0:8484")


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} cannot be listened on"):
            serving(tmp_path, "--listen", f"127.0.0.1:{port}")

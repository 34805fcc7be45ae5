"""The rehearsal LLM as a child process."""

import asyncio
from pathlib import Path

import pytest

from docllm.agent.llm.rehearsal.command import rehearsal_child
from docllm.agent.ports import Reply
from tests.unit.agent.llm.rehearsal.test_wire import _ended


def test_an_address_of_ipv6_is_one_that_can_be_called() -> None:
    """An IPv6 address stands in brackets; otherwise its last number would be the port."""
    if "00000000000000000000000000000001" not in Path("/proc/net/if_inet6").read_text():
        pytest.skip("no IPv6 here")

    with rehearsal_child("--host ::1 --latency 0") as url:
        reply = asyncio.run(_ended(url))

    assert url.startswith("http://[::1]:")
    assert isinstance(reply, Reply)

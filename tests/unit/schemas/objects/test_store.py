"""Stores without their library, which is an extra."""

import asyncio
import subprocess
import sys

import pytest

from docllm.schemas.errors import ConfigError
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectStores, require_library

_LOADED = """
import sys
import docllm.agent.cli, docllm.agent.wiring.handlers
import docllm.producer.cli.load.command, docllm.schemas.objects.store
print("obstore" in sys.modules)
"""


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its extras docllm reads no objects."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)

    with pytest.raises(ObjectError, match=r"pip install '\.\[objects\]'") as caught:
        asyncio.run(ObjectStores().get("s3://bucket/a", limit=1))

    assert caught.value.fault is ObjectFault.NOT_INSTALLED


def test_the_library_is_loaded_at_the_first_use() -> None:
    """An agent or a load without objects pays nothing for it, and needs no extra."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"


def test_settings_that_need_the_extra_are_refused_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An agent would otherwise try each document again and again."""
    require_library(["https://docs.example.com/", "s3://bucket/"])
    monkeypatch.setitem(sys.modules, "obstore", None)

    require_library(["https://docs.example.com/"])
    with pytest.raises(ConfigError, match=r"s3://bucket/ needs .* '\.\[objects\]'"):
        require_library(["https://docs.example.com/", "s3://bucket/"])

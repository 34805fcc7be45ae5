"""Settings are read again: a whole change is used, anything else is reported."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.settings.config import Config, LLMConfig, Secret
from docllm.schemas.settings.rereading import CHECK_EVERY_S, TICK_S, SettingsReader
from tests.support.clock import HandClock

OLD = Config(llm=LLMConfig(api_key=Secret("sk-old")), file=Path("/etc/docllm.toml"))
NEW = replace(OLD, llm=LLMConfig(api_key=Secret("sk-new")))
OTHER = replace(OLD, guard_probe_s=9.0)


class EndingClock(HandClock):
    """A clock that ends a duty at a time."""

    end_s = float("inf")

    async def sleep(self, delay_s: float) -> None:
        await super().sleep(delay_s)
        if self.at_s > self.end_s:
            raise TimeoutError


@dataclass
class Harness:
    """A reader over a file that the test replaces."""

    file: Config | str = OLD
    forbidden: Config | None = None
    unreachable: Config | None = None  # only once
    used: list[Config] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    looks: int = 0

    def __post_init__(self) -> None:
        self.clock = EndingClock()
        self.request = asyncio.Event()
        self.reader = SettingsReader(
            config=OLD,
            load=self._load,
            apply=self._apply,
            refused=self.refusals.append,
            request=self.request,
            executor=InlineExecutor(),
            clock=self.clock,
        )

    def look(self, *files: Config | str, asked: bool = False) -> None:
        for self.file in files:
            asyncio.run(self.reader.reread(asked=asked))

    def _load(self) -> Config:
        self.looks += 1
        if isinstance(self.file, str):
            raise ConfigError(self.file)
        return self.file

    async def _apply(self, config: Config) -> None:
        if config is self.forbidden:
            raise ConfigError("agent.slots cannot change so")
        if config is self.unreachable:
            self.unreachable = None
            raise UnreachableError("the database does not answer")
        self.used.append(config)


def test_a_change_is_used_once_it_is_seen_twice(caplog: pytest.LogCaptureFixture) -> None:
    """The log names what changed, and never a value."""
    caplog.set_level(logging.INFO)
    harness = Harness()

    harness.look(OLD, NEW)
    assert harness.used == []
    harness.look(NEW, NEW, NEW)

    assert harness.used == [NEW]
    assert caplog.messages == ["the changed settings are in use: llm.api_key"]


def test_a_file_that_is_being_written_is_not_used() -> None:
    """Half a file may be whole settings by chance; what comes next is something else."""
    harness = Harness()

    harness.look(OTHER, NEW, "line 3: not TOML", NEW)
    assert (harness.used, harness.refusals) == ([], [])
    harness.look(NEW)

    assert harness.used == [NEW]


def test_a_fault_is_reported_once_and_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    """The settings of before stay; when the file is right again, nobody is told of a fault."""
    harness = Harness()

    harness.look(*["line 3: not TOML\nline 4: too"] * 4)
    assert harness.refusals == ["line 3: not TOML; line 4: too"]
    harness.look(OLD, OLD)

    assert harness.refusals == ["line 3: not TOML; line 4: too", ""]
    assert harness.used == []
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_what_the_agent_cannot_use_is_reported() -> None:
    """A later change that it can use takes the report back."""
    harness = Harness(forbidden=NEW)

    harness.look(NEW, NEW, NEW, OTHER, OTHER)

    assert harness.refusals == ["agent.slots cannot change so", ""]
    assert harness.used == [OTHER]


def test_what_the_agent_cannot_use_now_is_tried_again() -> None:
    """Nobody has to change the file once more because the ledger was away for a moment."""
    harness = Harness(unreachable=NEW)

    harness.look(NEW, NEW)
    assert (harness.used, harness.refusals) == ([], ["the database does not answer"])
    harness.look(NEW)

    assert (harness.used, harness.refusals[1:]) == ([NEW], [""])


def test_a_bug_in_the_change_ends_no_agent() -> None:
    """The bug is reported like a fault of the file."""
    harness = Harness()

    async def broken(_config: Config) -> None:
        raise KeyError("bug")

    harness.reader._apply = broken
    harness.look(NEW, NEW)

    assert harness.refusals == ["KeyError: 'bug'"]


def test_a_file_that_is_gone_changes_nothing() -> None:
    """Without it the defaults would hold, which nobody asked for."""
    harness = Harness()

    harness.look(*[replace(OLD, llm=LLMConfig(), file=None)] * 2)

    assert harness.refusals == ["/etc/docllm.toml is gone"]
    assert harness.used == []


def test_a_signal_needs_no_second_look(caplog: pytest.LogCaptureFixture) -> None:
    """A person who asks has written the file; and is told if nothing changed."""
    caplog.set_level(logging.INFO)
    harness = Harness()

    harness.look(OLD, NEW, asked=True)

    assert harness.used == [NEW]
    assert caplog.messages[0] == "the settings have not changed"


def test_a_change_is_seen_within_seconds() -> None:
    """A look every few seconds, and at once after a request."""
    harness = Harness()

    def run_for(seconds: float) -> None:
        harness.clock.end_s = harness.clock.at_s + seconds
        with suppress(TimeoutError):
            asyncio.run(harness.reader.run())

    run_for(20.0)
    assert harness.looks == pytest.approx(20.0 / CHECK_EVERY_S, abs=1)
    harness.looks = 0
    harness.request.set()
    run_for(2 * TICK_S)

    assert harness.looks == 1

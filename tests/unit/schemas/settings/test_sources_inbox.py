"""The settings of the inbox."""

from pathlib import Path

import pytest

from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.sources import load_config


def load(folder: Path, toml: str) -> Config:
    (folder / "docllm.toml").write_text(toml)
    return load_config(flags={}, environ={}, cwd=folder)


def test_an_inbox_is_read_unless_it_is_closed(tmp_path: Path) -> None:
    """An inbox without a setting is read."""
    assert load(tmp_path, "").inbox.enabled
    assert not load(tmp_path, "[inbox]\nenabled = false").inbox.enabled


def test_records_join_no_loaded_batch_unless_that_is_wanted(tmp_path: Path) -> None:
    """Whoever can write to the inbox could otherwise add to any batch."""
    assert not load(tmp_path, "").inbox.join_batches
    assert load(tmp_path, "[inbox]\njoin_batches = true").inbox.join_batches


def test_letters_that_come_back_replay_nothing_unless_that_is_wanted(tmp_path: Path) -> None:
    """Whoever can write to the topics could otherwise have each dead task run again."""
    assert not load(tmp_path, "").inbox.redrive
    assert load(tmp_path, "[inbox]\nredrive = true").inbox.redrive


def test_the_inbox_waits_for_no_backlog_unless_that_is_wanted(tmp_path: Path) -> None:
    """0 is no limit."""
    assert load(tmp_path, "").inbox.max_backlog == 0
    assert load(tmp_path, "[inbox]\nmax_backlog = 5").inbox.max_backlog == 5


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("enabled = 'no'", "inbox.enabled is wrong; write true or false, without quotes"),
        ("redrive = 1", "inbox.redrive is wrong; write true or false, without quotes"),
        ("max_backlog = -1", "inbox.max_backlog"),
        ("backlog = 5", "inbox.backlog is unknown"),
    ],
)
def test_unsupported_inbox_settings_are_refused(tmp_path: Path, line: str, words: str) -> None:
    """A setting that is taken and does nothing would be believed."""
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, f"[inbox]\n{line}")

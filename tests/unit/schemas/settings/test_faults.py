"""Settings that contradict each other."""

from pathlib import Path
from typing import Any

import pytest

from docllm.schemas.errors import ConfigError
from tests.support.settings import load


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"DOCLLM_KAFKA_BOOTSTRAP": "k:9092"}, "set DOCLLM_DATABASE_URL"),
        (
            {"DOCLLM_KAFKA_BOOTSTRAP": "k:9092", "DOCLLM_DATABASE_URL": "sqlite:///x.db"},
            "set DOCLLM_DATABASE_URL",
        ),
        ({"DOCLLM_DATABASE_URL": "mysql://u:p@h/docllm"}, "set DOCLLM_KAFKA_BOOTSTRAP"),
    ],
)
def test_half_of_a_pair_is_refused(tmp_path: Path, environ: dict[str, Any], words: str) -> None:
    """Kafka with SQLite, or MySQL with the embedded bus, is refused with the variable to set."""
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, **environ)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("[types.a]\nroute = 'default'\nmodel = 'm'", "types.a.model and route are both set"),
        ("[types.a]\ntiers = ['10s']", "types.a.tiers names a tier .* it has 30s, 5m, 1h"),
        ("[types.a]\nsoft_limit_s = 9\ntime_limit_s = 9", "types.a.soft_limit_s must be less"),
        ("[types.a]\nrun = 'process'", "types.a.run has no effect without a handler"),
        ("[types.a]\nmemory_mb = 99", "types.a.memory_mb limits a process; set run = "),
        ("[types.a]\nhandler = 'a:b'\ntime_s = 9", "types.a.time_s limits a process"),
        ("[types.openai]\nprompt = 'p'", "types.openai.prompt has no effect"),
        ("[types.openai]\nmodel = 'm'", "types.openai.model has no effect"),
        ("[types.openai]\nstrict_answer = true", "types.openai.strict_answer has no effect"),
        ("[types.a]\npart_tokens = 900", "types.a.part_tokens has no effect .* handler = "),
        ("[types.map-reduce]\nmerge_prompt = 'Merge'", "merge_prompt has no {answers}; write it"),
        (
            "[types.a]\nhandler = 'docllm.agent.handlers:map_reduce'\nrun = 'process'",
            "types.a.run must be agent for docllm.agent.handlers:map_reduce",
        ),
        ("[types.map-reduce]\nsoft_limit_s = 9", "soft_limit_s would end .* set time_limit_s"),
    ],
)
def test_a_contradiction_names_its_setting_and_the_fix(
    tmp_path: Path, settings: str, words: str
) -> None:
    """Each of these would be obeyed only in part, and nobody would know in which."""
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, settings)


def test_a_document_may_be_split(tmp_path: Path) -> None:
    """By the built-in type, or by a type of one's own that uses its handler."""
    parts = "part_tokens = 2000\noverlap_tokens = 0\nmerge_prompt = '{answers}'\n"
    handler = "handler = 'docllm.agent.handlers:map_reduce'"

    types = load(tmp_path, f"[types.map-reduce]\n{parts}[types.a]\n{parts}{handler}").types

    assert [types[name].part_tokens for name in ("map-reduce", "a")] == [2000, 2000]


def test_a_process_may_be_limited(tmp_path: Path) -> None:
    """Memory and time are limits of processes alone."""
    toml = "[types.a]\nhandler = 'a:b'\nrun = 'process'\nmemory_mb = 64\ntime_s = 1.5"

    settings = load(tmp_path, toml).types["a"]

    assert (settings.run, settings.memory_mb, settings.time_s) == ("process", 64, 1.5)


def test_what_fits_together_is_taken(tmp_path: Path) -> None:
    """A type has some of the group's tiers, and a soft limit below its hard one."""
    toml = "[types.a]\ntiers = ['30s', '1h']\nsoft_limit_s = 8\ntime_limit_s = 9\nmodel = 'm'"

    settings = load(tmp_path, toml).types["a"]

    assert (settings.tiers, settings.soft_limit_s, settings.time_limit_s, settings.model) == (
        ("30s", "1h"),
        8.0,
        9.0,
        "m",
    )

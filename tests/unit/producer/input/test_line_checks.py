"""Tasks that would certainly fail, or wait in every agent, are refused before they are loaded."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.producer.input.line_checks import LineChecks
from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import Config, RouteConfig, TypeConfig

CONFIG = Config(
    routes={
        "fast": RouteConfig(fallback=("other",)),
        "other": RouteConfig(model="large"),
        "third": RouteConfig(),
    },
    types={
        "bare": TypeConfig(),
        "own": TypeConfig(handler="invoices:handle"),
        "read": TypeConfig(prompt="Read: {document}"),
        "short": TypeConfig(time_limit_s=60),
        "write": TypeConfig(prompt="Write a poem."),
    },
)
BEGIN = datetime(2026, 2, 2, tzinfo=UTC)
INPUT = {"text": "A bill."}
CHAT = {"body": {"messages": [{"role": "user", "content": "x"}]}}


def check(config: Config = CONFIG, options: Any = None, **fields: Any) -> InvalidLine | None:
    """Return what becomes of line 3, which has these fields; None if it passes."""
    name = "custom_id" if "body" in fields else "id"
    line = read_line(3, orjson.dumps({name: "a"} | fields))
    assert isinstance(line, ValidLine), line
    (result,) = LineChecks(config, **(options or {})).checked([line])
    if isinstance(result, InvalidLine):
        assert (result.line, result.text) == (3, line.value.decode())  # it can be repaired
        return result
    assert result is line
    return None


# ---- types and prompts


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"type": "shrot", "prompt": "x"},
            (
                "line 3: type 'shrot' is unknown; did you mean short? "
                "a type of your own needs [types.shrot] in the settings; "
                "if only the agents have it, load with --allow-type shrot"
            ),
        ),
        (
            {"type": "bare", "input": INPUT},
            (
                "line 3: prompt is missing, and type bare has no prompt and no handler here; "
                "write a prompt into the line or into [types.bare]; "
                "if only the agents have one, load with --allow-type bare"
            ),
        ),
        (
            {"type": "read"},
            (
                "line 3: input is missing, but the prompt of type read has {document}; "
                "add input.text or input.uri, or give the line a prompt without {document}"
            ),
        ),
        (
            {"type": "write", "input": INPUT},
            (
                "line 3: input is given, but the prompt of type write has no {document}; "
                "leave input out, or write {document} into the prompt of [types.write]"
            ),
        ),
        (
            {"prompt": "x", "deadline": "2026-02-02T00:00:00Z"},
            (
                "line 3: deadline is not after --not-before; give a later deadline, or an earlier "
                "--not-before"
            ),
        ),
    ],
)
def test_the_error_names_line_field_and_fix(fields: dict[str, Any], text: str) -> None:
    """The type or its prompt does not fit, or the task may not begin before its deadline."""
    assert str(check(options={"begin": BEGIN}, **fields)) == text


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "bare", "prompt": "Write."},
        {"type": "own", "input": INPUT},
        {"type": "read", "input": INPUT},
        {"type": "read", "input": {"uri": "file:///a.txt"}},
        {"type": "read", "prompt": "Write."},
        {"type": "write"},
        {"type": "only-agents-know"},
        {"prompt": "Read: {document}", "input": INPUT},
        {"prompt": "x", "type": "map-reduce"},
        CHAT,
        {"prompt": "x", "deadline": "2026-02-02T00:00:01Z"},
        {"prompt": "x", "deadline": "2026-02-02T00:00:00Z", "not_before": "2026-02-01T00:00:00Z"},
    ],
)
def test_a_task_that_may_succeed_passes(fields: dict[str, Any]) -> None:
    """A type is known by the settings or by an agent's report."""
    assert check(options={"begin": BEGIN, "reported": ["only-agents-know"]}, **fields) is None


def test_a_person_lets_a_type_through() -> None:
    """Only the agents may have its handler."""
    for name in ("bare", "mine"):
        assert check(options={"types": [name]}, type=name) is None


def test_a_type_like_no_other_is_refused_with_those_that_are_known() -> None:
    """Without a similar name, the error lists the known ones, and not too many."""
    kinds = {f"kind-{number}": TypeConfig() for number in range(20)}
    bad = check(Config(types=kinds), type="XYZ", prompt="x")
    assert bad is not None
    assert "known are: document, kind-0, " in bad.fix
    assert ", ...; a type of your own" in bad.fix
    assert "kind-9" not in bad.fix


@pytest.mark.parametrize("name", ["Document", "documents", "openAI"])
def test_a_type_is_compared_letter_by_letter(name: str) -> None:
    """Another spelling of a built-in type is another type."""
    assert f"{name!r} is unknown; did you mean " in str(check(type=name, prompt="x"))


@pytest.mark.parametrize(
    ("kind", "fields", "most"),
    [
        ("short", {"type": "short", "prompt": "x"}, 60),
        ("read", {"type": "read", "prompt": "x"}, 635),
        ("document", {"prompt": "x"}, 635),
        ("openai", CHAT, 635),
    ],
)
def test_a_line_may_not_ask_for_more_time_than_its_type_allows(
    kind: str, fields: dict[str, Any], most: int
) -> None:
    """The bound is the type's limit, or the usual one of handlers."""
    assert check(**fields, time_limit_s=most) is None
    assert check(options={"types": ["mine"]}, type="mine", time_limit_s=86_400) is None
    bad = check(**fields, time_limit_s=most + 1)
    assert bad is not None
    assert bad.field == "time_limit_s"
    assert bad.error == f"is {most + 1}, and an attempt of type {kind} has {most} s at most"
    assert bad.fix == f"write a smaller number, or a larger time_limit_s into [types.{kind}]"


# ---- routes


@pytest.mark.parametrize(
    ("allowed", "fields"),
    [
        (None, {}),
        (None, {"route": "fast"}),
        (None, {"route": "fast", "routes_allowed": ["other"]}),
        (None, {"routes_allowed": ["default"]}),
        (("third",), {"routes_allowed": ["default"]}),
        (("default", "other"), {"model": "large"}),
        (("fast",), {"model": "fast"}),
    ],
)
def test_a_task_that_may_take_a_route_is_loaded(
    allowed: tuple[str, ...] | None, fields: dict[str, Any]
) -> None:
    """The task's own route or one of its fallbacks is allowed."""
    assert check(options={"routes": allowed}, prompt="p", **fields) is None


@pytest.mark.parametrize(
    ("allowed", "fields", "field", "words"),
    [
        (None, {"route": "fats"}, "route", "names 'fats', which is no route; did you mean fast?"),
        (None, {"route": "zz"}, "route", "known are: fast, other, third, default; a route needs"),
        (None, {"routes_allowed": ["fast", "zz"]}, "routes_allowed", "names 'zz'"),
        (
            None,
            {"route": "other", "routes_allowed": ["fast", "third"]},
            "routes_allowed",
            "has neither the route other nor a fallback of it in fast, third",
        ),
        (("fast",), {}, "", "has neither the route default nor a fallback of it in fast"),
        (("fast",), {"model": "zz"}, "", "has neither a route for the model zz nor"),
    ],
)
def test_a_task_that_may_take_no_route_is_a_bad_line(
    allowed: tuple[str, ...] | None, fields: dict[str, Any], field: str, words: str
) -> None:
    """The error names the field, and says what to do."""
    bad = check(options={"routes": allowed}, prompt="p", **fields)
    assert bad is not None
    assert bad.field == field
    assert words in str(bad)


def test_an_option_that_names_no_route_ends_the_load() -> None:
    """A misspelt route would leave the tasks without one."""
    with pytest.raises(
        ConfigError, match="--routes-allowed: 'fats' is no route; did you mean fast"
    ):
        LineChecks(CONFIG, routes=("other", "fats"))


# ---- documents and objects


def problem(root: Path, path: Path) -> str:
    """Return the error of a line that names this file, empty if it passes."""
    config = Config(document_roots=(root,), data_dir=root / "docllm-data")
    bad = check(config, prompt="Sum up: {document}", input={"uri": path.as_uri()})
    return "" if bad is None else str(bad)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b" \n" * 100_000, "has nothing but white space"),
    ],
)
def test_a_document_without_content_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    """The error names the line and its field."""
    (tmp_path / "a.txt").write_bytes(content)
    said = problem(tmp_path, tmp_path / "a.txt")
    assert said.startswith(f"line 3: input.uri names a document that {words}; leave the line out")


@pytest.mark.parametrize("content", [b"x", b"\n" * 200_000 + b"x", b"\0", b" \xff"])
def test_a_document_with_content_passes(tmp_path: Path, content: bytes) -> None:
    """A file that is no text passes too: the agent has a better error for it."""
    (tmp_path / "a.txt").write_bytes(content)
    assert problem(tmp_path, tmp_path / "a.txt") == ""


def test_what_cannot_be_read_here_passes(tmp_path: Path) -> None:
    """A missing file, a pipe, a folder, a huge file and a closed root are the agent's business."""
    (tmp_path / "root" / "folder").mkdir(parents=True)
    root = tmp_path / "root"
    os.mkfifo(root / "pipe")
    (tmp_path / "outside").touch()
    (root / "docllm-data").touch()
    with (root / "huge").open("wb") as file:
        file.truncate((32 << 20) + 1)
    paths = [root / name for name in ("missing", "pipe", "folder", "docllm-data", "huge")]
    assert [problem(root, path) for path in [*paths, tmp_path / "outside"]] == [""] * 6


def test_the_later_of_two_lines_for_one_object_is_refused() -> None:
    """The same line again is a twin, and folders may be shared. A bad line stays as it is."""
    named = ["a s3://b/x", "b s3://b/y", "a s3://b/x", "c s3://b/", "d s3://b/", "e s3://b/y"]
    lines = [
        read_line(number, orjson.dumps({"id": key, "prompt": "x", "output_uri": uri}))
        for number, (key, uri) in enumerate(map(str.split, named), 1)
    ]
    bad = read_line(7, b"{")
    *passed, refused, last = LineChecks(CONFIG).checked([*lines, bad])
    assert [*passed, last] == [*lines[:-1], bad]
    assert isinstance(refused, InvalidLine)
    assert (refused.line, refused.field) == (6, "output_uri")
    assert refused.error == "names the object of an earlier line"


def test_the_first_reason_counts() -> None:
    """A person mends one field after another, in the order of the checks."""
    bad = check(type="zzz", prompt="x", route="zzz")
    assert bad is not None
    assert bad.field == "type"

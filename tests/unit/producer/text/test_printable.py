"""Text from outside can forge no line and move no cursor in a log or on a terminal."""

import json
import logging
import subprocess
import sys
import unicodedata
from collections.abc import Callable

import pytest

from docllm.agent.reporting.telemetry import configure_logging
from docllm.producer.cli.export import _escaped
from docllm.producer.screen.output import say_json
from docllm.producer.text.printable import (
    FRAMES,
    JsonFormatter,
    ShownFormatter,
    escaped,
    log_to_stderr,
    shown,
    shown_lines,
    shown_traceback,
)
from docllm.schemas.codes import Code

FORGED = "g\r\n2026-11-24 00:00:00,000 INFO    docllm.agent.agent: FORGED"
HOSTILE = [
    "\x1b[31m",
    "\x07",
    "\x7f",
    "\x85",
    "\x9b2J",
    "\u2028",
    "\u202e",
    "\u2066",
    "\u200f",
    "\ufeff",
    "\ud800",
    "\U000e0041",
]


def record(message: str, *, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error is not None else None
    return logging.LogRecord(
        "docllm.agent.dispatch.quarantine_queue",
        logging.WARNING,
        "f.py",
        1,
        "foreign record: %s",
        (message,),
        info,
    )


def raised(text: str) -> ValueError:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its text may be anything
        raise ValueError(text)
    return caught.value


@pytest.mark.parametrize("text", [FORGED, *HOSTILE])
def test_a_log_message_stays_on_one_line_without_controls(text: str) -> None:
    """A log message stays on one line without control characters.

    A header of a record, or a reason in Redis, used to write a line of its own and escape
    sequences.
    """
    line = ShownFormatter("%(levelname)s %(name)s: %(message)s").format(record(f"a{text}b"))

    assert line.isprintable()
    assert line.startswith("WARNING docllm.agent.dispatch.quarantine_queue: foreign record: a")


@pytest.mark.parametrize("text", [FORGED, *HOSTILE])
def test_a_logged_traceback_keeps_its_lines_and_none_looks_like_a_record(text: str) -> None:
    """A logged traceback keeps its lines, and none of them looks like a log record."""
    first, *lines = (
        ShownFormatter("%(message)s").format(record("x", error=raised(f"a{text}b"))).split("\n")
    )

    assert first == "foreign record: x"
    assert lines[0] == "    Traceback (most recent call last):"
    assert any("raise ValueError(text)" in line for line in lines)
    assert all(line.startswith("    ") and line.isprintable() for line in lines)


@pytest.mark.parametrize("text", [FORGED, *HOSTILE])
def test_a_log_record_is_one_json_object_on_one_line(text: str) -> None:
    """Programs read the whole text back, and no terminal acts on it."""
    line = JsonFormatter({"process": 2}).format(record(f"a{text}b", error=raised("x")))

    assert all(letter.isprintable() for letter in line)
    found = json.loads(line)
    assert found["msg"] == f"foreign record: a{text}b"
    assert (found["level"], found["process"]) == ("WARNING", 2)
    assert found["logger"] == "docllm.agent.dispatch.quarantine_queue"
    assert found["ts"].endswith("Z")
    assert "raise ValueError(text)" in found["traceback"]


@pytest.mark.parametrize("code", [Code.ROUTE_PARKED, *HOSTILE])
def test_a_line_that_asks_for_an_act_has_its_code(code: str) -> None:
    """A plain line ends with it, an object has it; one that an agent's child tells is inert."""
    asks, tells = record("x"), record("x")
    asks.code, tells.code = code, ""

    line, found = ShownFormatter("%(message)s").format(asks), JsonFormatter({}).format(asks)

    assert line.isprintable()
    assert line == f"foreign record: x [{shown(code)}]"
    assert json.loads(found)["code"] == code
    assert ShownFormatter("%(message)s").format(tells) == "foreign record: x"
    assert json.loads(JsonFormatter({}).format(tells))["code"] is None


def test_commands_in_json_name_the_configuration_file() -> None:
    """A person copies the command, wherever the line is read."""
    asks = record("run: docllm migrate")
    assert "migrate --config my.toml" in JsonFormatter({}, config_file="my.toml").format(asks)


def test_a_traceback_without_its_error_is_kept_in_json() -> None:
    """The text of a handler's error is not logged, its lines are."""
    with_frames = record("x")
    setattr(with_frames, FRAMES, "File a.py, line 1")
    assert json.loads(JsonFormatter({}).format(with_frames))["traceback"] == "File a.py, line 1"
    assert "process" not in json.loads(JsonFormatter({}).format(with_frames))


@pytest.mark.parametrize(
    "configure",
    [
        lambda: configure_logging("INFO", 2, "my.toml"),
        lambda: log_to_stderr(ShownFormatter("%(message)s", config_file="my.toml"), "WARNING"),
    ],
)
def test_both_programs_log_through_the_formatter(
    configure: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both programs use the formatter: logs are safe, and commands name the configuration file."""
    root = logging.Logger("root")  # noqa: LOG001 - pytest has put its own handlers on the real one
    monkeypatch.setattr(logging, "root", root)
    configure()

    root.error("run: docllm migrate\n%s", HOSTILE[0])

    output = capsys.readouterr().err
    assert output.endswith("run: docllm migrate --config my.toml  [31m\n")


# What Python writes to stderr by itself, and a log line whose argument does not fit.
OF_PYTHON = """
import asyncio, logging, threading, warnings
from docllm.agent.reporting.telemetry import configure_logging, log_as_json

configure_logging("INFO")
log_as_json("g")
warnings.warn("a library\\nwarns")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
type("Hostile", (), {"__del__": lambda self: [][1]})()
logging.getLogger("library").error("%d tasks", "secret")
"""


def test_what_python_writes_to_stderr_is_an_object_too() -> None:
    """A program that gathers logs meets no half line and no bare traceback."""
    done = subprocess.run(
        [sys.executable, "-c", OF_PYTHON], capture_output=True, check=True, text=True
    )

    warning, thread, ignored, unfilled = map(json.loads, done.stderr.splitlines())
    assert "UserWarning: a library\nwarns" in warning["msg"]
    assert "ZeroDivisionError" in thread["traceback"]
    assert "IndexError" in ignored["traceback"]
    assert unfilled["msg"].startswith("%d tasks (its arguments do not fit: ")
    assert "secret" not in done.stderr


def test_a_warning_of_a_library_is_a_line_of_the_log() -> None:
    """It has a time and a level, and cannot look like two lines."""
    program = OF_PYTHON.replace('log_as_json("g")', "").partition("thread = ")[0]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )

    (line,) = done.stderr.splitlines()
    assert " WARNING py.warnings: " in line
    assert "UserWarning: a library warns" in line


def test_a_traceback_that_is_shown_keeps_its_lines_alone() -> None:
    """The programs show a bug of ours with its whole traceback, as safe lines."""
    lines = shown_traceback(raised(f"a{''.join(HOSTILE)}b")).split("\n")

    assert lines[0] == "Traceback (most recent call last):"
    assert all(line.isprintable() for line in lines)
    assert shown_lines("a\x1b\nb") == "a \nb"


def test_escaping_changes_no_value_and_leaves_no_control() -> None:
    """Every control, format and separator character becomes a JSON escape."""
    bad = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in {"Cc", "Zl", "Zp"}
    ]
    text = json.dumps(
        "".join([*bad, *HOSTILE, "\u061c\u200e\u202a\u2069", "Grüße 日本\u3000語 😀"]),
        ensure_ascii=False,
    )

    safe = escaped(text)

    assert json.loads(safe) == json.loads(text)
    assert not [
        letter for letter in safe if unicodedata.category(letter) in {"Cc", "Cf", "Zl", "Zp", "Cs"}
    ]
    assert "Grüße 日本\u3000語 😀" in safe


@pytest.mark.parametrize("terminal", [True, False])
def test_json_on_a_terminal_holds_no_raw_control(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, terminal: bool
) -> None:
    """JSON on a terminal has no raw control character.

    A pipe or a file gets the bytes as they are.
    """
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)

    say_json({"a": "\x9b2J\u202e"})

    output = capsys.readouterr().out
    assert json.loads(output) == {"a": "\x9b2J\u202e"}
    assert ("\\u009b2J\\u202e" in output) is terminal
    assert ("\x9b" in output) is not terminal


def test_a_result_line_for_a_terminal_is_escaped() -> None:
    """U+0080 to U+009F are escaped for a terminal, which would read them as escape sequences."""
    line = _escaped(lambda _: '{"result":"\x9b31m\u202e"}\n'.encode())(None)  # type: ignore[arg-type]

    assert line == b'{"result":"\\u009b31m\\u202e"}\n'
    assert _escaped(lambda _: None)(None) is None  # type: ignore[arg-type]

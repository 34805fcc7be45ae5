"""The parser that all commands share: what it loads, and how it refuses words."""

import subprocess
import sys
from pathlib import Path

import pytest

from docllm.producer.cli.options.strict_parser import Imported, nearest
from docllm.producer.cli.parser import parser

ROOT = Path(__file__).parents[5]
SLOW = {
    "sqlalchemy",
    "alembic",
    "redis",
    "confluent_kafka",
    "pyreqwest",
    "rich",
    "pymysql",
    "uvloop",
}
LOADED = """
import atexit, runpy, sys
atexit.register(lambda: print("\\n" + " ".join(sys.modules)))
module, *sys.argv[1:] = sys.argv[1:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("option", ["--help", "--version"])
@pytest.mark.parametrize(
    "program",
    [
        "docllm.producer",
        "docllm.producer status",
        "docllm.producer dead show",
        "docllm.agent",
        "docllm.agent resume",
        "docllm",
        "docllm status",
    ],
)
def test_a_help_loads_no_library(program: str, option: str) -> None:
    """A help and the version load none of the libraries that take most of a start."""
    if option == "--version" and " " in program:
        return

    done = subprocess.run(
        [sys.executable, "-c", LOADED, *program.split(), option],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )

    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "docllm" in loaded
    assert loaded & SLOW == set()


def test_a_function_is_imported_by_its_first_call() -> None:
    """The module of a function is imported when the function is called."""
    joined = Imported("posixpath:join")

    assert joined("a", "b") == "a/b"


def test_the_nearest_name_or_all_names_are_shown() -> None:
    """A word near to a name gets that name; any other word gets all names."""
    assert nearest("stauts", ["load", "status"]) == "; did you mean status?"
    assert nearest("x", ["load", "status"]) == "; known are: load, status"
    assert nearest("x", []) == ""


def test_an_option_of_other_programs_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest name of such an option would mislead, as `--batch` for `--watch`."""
    with pytest.raises(SystemExit):
        parser().parse_args(["status", "--watch"])

    error = capsys.readouterr().err
    assert "unknown option --watch; on a terminal, status shows each change anyway" in error
    assert "did you mean" not in error

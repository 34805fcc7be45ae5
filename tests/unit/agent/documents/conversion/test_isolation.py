"""A converting process reads its libraries, but no secrets, and reaches no network or program.

Without these parts of the kernel there is nothing to prove, so the tests need Linux 5.13.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[5]
PROGRAM = """
import os, sys
from docllm.agent.documents.conversion.isolation import isolate

isolate()
try:
    {act}
except OSError as error:
    print(type(error).__name__)
else:
    print("done")
"""


def tried(act: str, *arguments: str) -> str:
    """Return how an act of an isolated process ended."""
    command = [sys.executable, "-c", PROGRAM.format(act=act), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "act",
    [
        "open(f'/proc/{os.getppid()}/environ', 'rb').read()",
        "open(f'/proc/{os.getppid()}/mem', 'rb')",
        "open('/etc/passwd')",
        "open('README.md')",
        "os.listdir('/tmp')",
        "open(sys.argv[1])",
        "open(sys.argv[1], 'w')",
        "__import__('socket').socket()",
        "__import__('socket').socket(__import__('socket').AF_UNIX)",
        "__import__('socket').create_connection(('127.0.0.1', 9))",
        "os.execv('/bin/true', ['true'])",
        "__import__('subprocess').run(['/bin/true'])",
    ],
)
def test_what_no_conversion_needs_is_refused(act: str, tmp_path: Path) -> None:
    settings = tmp_path / "docllm.toml"
    settings.write_text("api_key = 'secret'")

    assert tried(act, str(settings)) == "PermissionError"
    assert settings.read_text() == "api_key = 'secret'"


@pytest.mark.parametrize(
    "act",
    [
        "import selectolax.lexbor, pypdfium2",
        "from docllm.agent.documents.conversion import pdf, docx, html",
        "import zoneinfo, sqlite3, ssl",
        "open('/dev/null', 'rb')",
        "os.getcwd()",
    ],
)
def test_libraries_are_loaded(act: str) -> None:
    """A process loads a library when the first document needs it, after it was isolated."""
    assert tried(act) == "done"

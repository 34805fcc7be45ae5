"""Programs start in any way: without standard files, with poor encodings, interrupted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
TAKE = (
    "import sys; from docllm.schemas.runtime.starting import take_standard_files; "
    "take_standard_files(); "
)
FIRST_FILE = (
    TAKE + "file = open(sys.argv[1], 'w'); print('out'); sys.stderr.write('err'); "
    "print(file.fileno(), file=file)"
)
READ = TAKE + "sys.stdin.buffer.read()"


def started(
    code: str, *arguments: str, closed: str = "", **environ: str
) -> subprocess.CompletedProcess[bytes]:
    command = ["sh", "-c", f'exec "$0" -c "$@" {closed}', sys.executable, code, *arguments]
    return subprocess.run(
        command, check=False, cwd=ROOT, env=os.environ | environ, capture_output=True
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_no_file_of_a_program_takes_the_place_of_a_standard_one(
    tmp_path: Path, closed: str
) -> None:
    """No file of a program gets the number of a closed standard file.

    Printed text would be written into it, and the event loop ends the process if its own files have
    such numbers.
    """
    done = started(FIRST_FILE, str(tmp_path / "file"), closed=closed)

    assert done.returncode == 0, done
    assert int((tmp_path / "file").read_text()) > 2


def test_a_closed_input_is_not_an_empty_one() -> None:
    """A closed input is no empty one: nothing would be loaded, and all would seem well."""
    done = started(READ, closed="<&-")

    assert done.returncode == 1
    assert b"Bad file descriptor" in done.stderr


def test_any_text_can_be_printed() -> None:
    """Any text can be printed, even in a locale without its letters."""
    done = started(TAKE + "print('caf\\u00e9 \\U0001f600')", PYTHONIOENCODING="ascii")

    assert (done.returncode, done.stdout) == (0, b"caf\\xe9 \\U0001f600\n")


LOUD = (
    TAKE
    + "[sys.stderr.write(f'remark {number} caf\\u00e9\\n') for number in range(9999)]; sys.exit(4)"
)


@pytest.mark.parametrize("elsewhere", ["2>/dev/full", "2>&1 >/dev/null | true", "2>/dev/null"])
def test_unreadable_messages_end_no_work_and_change_no_exit_code(elsewhere: str) -> None:
    """Messages that nobody can read end no work and change no exit code.

    A load used to stop at its first bad line, with the code for all good lines loaded. Agents ended
    with 1 for each error.
    """
    command = [
        "bash",
        "-c",
        f'"$0" -c "$1" {elsewhere}; exit ${{PIPESTATUS[0]}}',
        sys.executable,
        LOUD,
    ]

    assert subprocess.run(command, check=False, cwd=ROOT).returncode == 4


def test_messages_leave_the_program_at_once_in_any_encoding() -> None:
    """Each message line leaves the program when it is written, in any encoding."""
    done = started(
        TAKE + "sys.stderr.write('caf\u00e9\\n'); import os; os._exit(0)", PYTHONIOENCODING="ascii"
    )

    assert (done.returncode, done.stderr) == (0, b"caf\\xe9\n")


@pytest.mark.parametrize(
    ("trap", "ended"), [("", (130, b"", b"")), ("trap '' INT;", (0, b"topic ", b""))]
)
def test_a_producer_that_is_interrupted_while_it_loads_its_code_ends_with_130(
    tmp_path: Path, trap: str, ended: tuple[int, bytes, bytes]
) -> None:
    """Ctrl-C while a producer still loads its code is exit code 130, without a traceback.

    A job in the background, where it is ignored, goes on.
    """
    (tmp_path / "uvloop.py").write_text(
        "import os, signal\nfrom asyncio import new_event_loop\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
    )
    environ = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = ["sh", "-c", f'{trap} exec "$0" -m producer topics check', sys.executable]

    done = subprocess.run(command, check=False, cwd=tmp_path, env=environ, capture_output=True)

    assert (done.returncode, done.stdout[:6], done.stderr) == ended


LEFT = """
import os, signal
from docllm.schemas.runtime.starting import end

class Late:
    def __del__(self, kill=os.kill, me=os.getpid(), number=signal.SIGINT):
        kill(me, number)

late = Late()
end([signal.SIGINT], 4)
"""


def test_a_signal_at_the_very_end_changes_no_exit_code() -> None:
    """A signal at the very end changes no exit code.

    A second Ctrl-C after the drain used to meet an interpreter without handlers, and scripts saw a
    death by signal.
    """
    assert started(LEFT).returncode == 4

"""A program never runs on packages of strangers that have the names of docllm's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCLLM = (sys.executable, "-P", "-m", "docllm")
ENDS = "import os\nprint('taken', flush=True)\nos._exit(0)\n"


def run(
    folder: Path, *command: str, path: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a program in a folder, where docllm is found last, as an installed one is."""
    paths = [*([str(path)] if path else []), str(ROOT)]
    return subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=200,
    )


def write(file: Path, text: str = ENDS) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("producer", "schemas/__init__.py"),
        ("producer", "schemas.py"),
        ("agent", "schemas/__init__.py"),
        ("agent", "producer.py"),
    ],
)
def test_a_foreign_package_in_the_current_folder_is_named(
    tmp_path: Path, program: str, name: str
) -> None:
    """The error names the file and what to do; no line of that file runs."""
    file = write(tmp_path / name)

    done = run(tmp_path, sys.executable, "-m", program, "check")

    assert (done.returncode, done.stdout) == (2, "")
    assert str(file) in done.stderr
    assert "python -P -m producer" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["schemas/__init__.py", "producer.py", "agent/__init__.py"])
@pytest.mark.parametrize("arguments", [["check"], ["agent"], ["--version"]])
def test_docllm_names_a_foreign_package_on_the_path(
    tmp_path: Path, name: str, arguments: list[str]
) -> None:
    """PYTHONPATH comes before an installed docllm; the error says how to mend that."""
    file = write(tmp_path / "hostile" / name)

    done = run(tmp_path, *DOCLLM, *arguments, path=file.parents[len(Path(name).parts) - 1])

    assert (done.returncode, done.stdout) == (2, "")
    assert str(file) in done.stderr
    assert "unset PYTHONPATH" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_command_warns_of_a_foreign_agent(tmp_path: Path) -> None:
    """The commands that it names would run that file; `-P` keeps the current folder out."""
    file = write(tmp_path / "agent.py")

    done = run(tmp_path, sys.executable, "-m", "producer", "--version")
    apart = run(tmp_path, sys.executable, "-P", "-m", "producer", "--version")

    assert (done.returncode, apart.returncode, apart.stderr) == (0, 0, "")
    (line,) = done.stderr.splitlines()
    assert f"`python -m agent` would run {str(file)!r}" in line


def test_another_copy_of_docllm_is_warned_of(tmp_path: Path) -> None:
    """A command that finds parts of two copies says so, and `check` too."""
    (tmp_path / "schemas").symlink_to(ROOT / "schemas")
    linked = run(tmp_path, sys.executable, "-m", "producer", "--version")
    (tmp_path / "schemas").unlink()
    subprocess.run(["cp", "-r", ROOT / "schemas", tmp_path / "schemas"], check=True)
    copied = run(tmp_path, sys.executable, "-m", "producer", "--version")
    checked = run(tmp_path, sys.executable, "-m", "producer", "check")

    assert (linked.returncode, linked.stderr) == (0, "")
    assert copied.returncode == 0
    for done in (copied, checked):
        assert "warning: Python takes the package 'schemas' from" in done.stderr
        assert "two copies of docllm" in done.stderr


@pytest.mark.parametrize("program", [("-m", "producer"), ("-m", "agent"), DOCLLM[1:]])
@pytest.mark.parametrize("clone", [True, False])
def test_other_names_in_the_current_folder_are_no_matter(
    tmp_path: Path, program: tuple[str, ...], *, clone: bool
) -> None:
    """A clone, and a folder with handlers of its own, give no warning."""
    write(tmp_path / "answering.py")
    write(tmp_path / "schemas" / "order.json", "{}")  # a folder, but no package

    done = run(ROOT if clone else tmp_path, sys.executable, *program, "--help")

    assert (done.returncode, done.stderr) == (0, "")

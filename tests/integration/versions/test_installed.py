"""The distributions: built, installed outside of the clone, and used beside hostile files."""

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")
MAX_INSTALLED_MB = 160.0
SHELL = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "COLUMNS": "80"}


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first of all workers has made."""
    own = factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder, ready = shared / name, shared / f"{name}.ready"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            ready.touch()
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both distributions from a copy of the clone's files; return their folder."""

    def build(out: Path) -> None:
        source = tmp_path_factory.mktemp("source")
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True,
            cwd=ROOT,
            capture_output=True,
        ).stdout.decode()
        for name in filter(None, names.split("\0")):
            if (ROOT / name).exists():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, source / name, follow_symlinks=False)
        subprocess.run([UV, "build", "--quiet", "--out-dir", out, source], check=True, cwd=out)

    return once(tmp_path_factory, "distributions", build)


@pytest.fixture(scope="module")
def programs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a fresh environment without pip; return the folder of its programs."""

    def install(folder: Path) -> None:
        environment = folder / "venv"
        subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, environment], check=True)
        python = environment / "bin" / "python"
        (wheel,) = built.glob("*.whl")
        subprocess.run([UV, "pip", "install", "--quiet", "--python", python, wheel], check=True)

    return once(tmp_path_factory, "installed", install) / "venv/bin"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Return a folder whose files have the names of docllm's folders, and end any program."""
    for name in ("agent.py", "producer.py", "schemas/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("import os\nprint('taken', flush=True)\nos._exit(0)\n")
    return tmp_path


def run(folder: Path, *command: str | Path, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=SHELL | more,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_the_distributions_hold_what_they_need(built: Path) -> None:
    """Both distributions have the licence, the front page and the files that are no code."""
    (wheel,) = built.glob("*.whl")
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"LICENSE", "README.md", "pyproject.toml", "docllm/__main__.py"} <= names
    with zipfile.ZipFile(wheel) as archive:
        listed = set(archive.namelist())
    tops = {name.partition("/")[0] for name in listed}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "agent",
        "docllm",
        "producer",
    }
    for program in ("agent", "producer"):
        assert {name for name in listed if name.startswith(f"{program}/")} == {
            f"{program}/__init__.py",
            f"{program}/__main__.py",
        }
    for end in ("schemas/json/task_line.json", "board.lua", "__init__.pyi"):
        assert any(name.startswith("docllm/") and name.endswith(end) for name in listed), end
    assert any(name.endswith("LICENSE") for name in listed)


def test_an_installation_is_small(programs: Path) -> None:
    """The core without pip takes less than 160 MB."""
    files = [
        path for path in programs.parent.rglob("*") if path.is_file() and not path.is_symlink()
    ]
    installed = sum(path.stat().st_size for path in files if path.suffix != ".pyc")

    assert installed / 1e6 < MAX_INSTALLED_MB


def test_a_command_never_runs_a_file_of_the_current_folder(programs: Path, hostile: Path) -> None:
    """Load, two agents with a rehearsal LLM, and export run docllm's own code."""
    tasks = b"".join(
        orjson.dumps({"id": f"t{number}", "prompt": "Say hello"}) + b"\n" for number in range(20)
    )
    (hostile / "tasks.jsonl").write_bytes(tasks)
    docllm = programs / "docllm"

    version = run(hostile, docllm, "--version")
    loaded = run(hostile, docllm, "load", "tasks.jsonl")
    ended = run(hostile, docllm, "agent", "--rehearsal", "--until-done", "--processes", "2")
    exported = run(hostile, docllm, "export", "results.jsonl")

    assert (version.returncode, version.stderr) == (0, "")
    assert version.stdout.startswith("docllm ")
    assert (loaded.returncode, ended.returncode, exported.returncode) == (0, 0, 0), ended.stderr
    results = [orjson.loads(line) for line in (hostile / "results.jsonl").read_bytes().splitlines()]
    assert [row["status"] for row in results] == ["succeeded"] * 20
    assert "taken" not in loaded.stdout + ended.stdout + ended.stderr + exported.stdout


OWN_MODULES = """
import agent, producer.names, schemas

async def greet(context):
    return [agent.NAME, producer.names.NAME, schemas.NAME]

def greet_apart(context):
    return [agent.NAME, producer.names.NAME, schemas.NAME]
"""


OWN_HANDLERS = """
[types.document]
handler = "answering:greet"
[types.apart]
handler = "answering:greet_apart"
[types.process]
handler = "answering:greet"
run = "process"
"""


@pytest.mark.parametrize("command", ["docllm agent", "python -P -m agent"])
def test_a_handler_gets_the_modules_beside_it(programs: Path, tmp_path: Path, command: str) -> None:
    """A module beside the settings serves types, the built-in one too, wherever its handlers run.

    A user's own modules are what it imports; one is in a folder without `__init__`.
    """
    for name in ("agent", "producer/names", "schemas"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(f'NAME = "own {name}"\n')
    (tmp_path / "answering.py").write_text(OWN_MODULES)
    (tmp_path / "docllm.toml").write_text(OWN_HANDLERS)
    types = ("document", "apart", "process")
    tasks = [{"id": name, "type": name, "prompt": "Say hello"} for name in types]
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))
    program, *words = command.split()

    loaded = run(tmp_path, programs / "docllm", "load", "tasks.jsonl")
    ended = run(tmp_path, programs / program, *words, "--until-done", "--rehearsal")
    exported = run(tmp_path, programs / "docllm", "export", "results.jsonl")

    assert (loaded.returncode, ended.returncode, exported.returncode) == (0, 0, 0), ended.stderr
    assert "warning" not in loaded.stderr + exported.stderr
    results = map(orjson.loads, (tmp_path / "results.jsonl").read_bytes().splitlines())
    own = ["own agent", "own producer/names", "own schemas"]
    assert {row["id"]: row["result"] for row in results} == dict.fromkeys(types, own)


@pytest.mark.parametrize("program", ["agent", "producer"])
def test_the_programs_are_found_by_their_modules(
    programs: Path, tmp_path: Path, program: str
) -> None:
    """`python -m agent` and `python -m producer` run docllm, and name commands in that form."""
    for path in (SHELL, SHELL | {"PYTHONPATH": str(ROOT)}):
        done = run(tmp_path, programs / "python", "-m", program, "--help", **path)

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"usage: python -m {program} ")


TYPED = """\
import docllm


async def extract(context: docllm.Context) -> dict[str, str]:
    answer = await context.complete({"model": context.model, "messages": []})
    return {"text": answer.text, "document": await context.document() or ""}


batch = docllm.Batch("b", prompt="p", rows=[{"id": "1", "text": "t"}]).run(slots=2)
costs: list[float | None] = [result.cost for result in batch.results()]
done: bool = batch.status.done
wrong: int = batch.status.cost
"""


def test_a_type_checker_of_a_user_sees_the_types(programs: Path, tmp_path: Path) -> None:
    """A script that uses the installed package is checked strictly, and its mistake is named."""
    (tmp_path / "script.py").write_text(TYPED)

    mypy = Path(sys.executable).with_name("mypy")
    done = run(tmp_path, mypy, "--strict", "--python-executable", programs / "python", "script.py")

    (error, end) = done.stdout.splitlines()
    assert error.startswith("script.py:12: error: Incompatible types in assignment")
    assert end.startswith("Found 1 error in 1 file")


def test_no_module_of_a_checkout_has_two_names() -> None:
    """The folders of a checkout are imported as parts of docllm alone."""
    for module in ("schemas", "schemas.codes", "agent.cli", "agent.handlers", "producer.cli"):
        done = run(ROOT, sys.executable, "-c", f"import {module}")

        assert done.returncode == 1, module
        assert "ImportError: " in done.stderr or "ModuleNotFoundError: " in done.stderr


def test_the_demo_of_an_installation_shows_results(programs: Path, tmp_path: Path) -> None:
    """`docllm demo` runs real documents and shows its commands in the form that was typed."""
    done = run(tmp_path, programs / "docllm", "demo")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "$ docllm agent --group docllm --until-done" in done.stdout
    assert "1 dead (replay: docllm replay --batch standard-library)" in done.stdout
    assert done.stdout.endswith(" repeated because an agent was killed, 0 lost\n")
    assert "python -m" not in done.stdout + done.stderr
    assert (tmp_path / "docllm-demo" / "results.jsonl").is_file()


BASH = """
eval "$(docllm completion bash)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=($1) COMP_TYPE=9
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_python_argcomplete docllm
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = 'docllm completion fish | source; complete --do-complete "$argv[1]"'


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("docllm sta", "status"),
        ("docllm dead sh", "show"),
        ("docllm agent --unt", "--until-done"),
        ("docllm export --form", "--format"),
    ],
)
def test_bash_completes_commands_and_options(programs: Path, line: str, wanted: str) -> None:
    """Bash completes a command, a subcommand and an option."""
    path = f"{programs}{os.pathsep}{SHELL['PATH']}"

    done = run(programs, "bash", "-c", BASH, "bash", line, PATH=path)

    assert done.stdout.split() == [wanted], done.stderr


def test_each_shell_gets_its_code(programs: Path, tmp_path: Path) -> None:
    """The code for each shell names docllm; a shell that is installed reads it."""
    path = f"{programs}{os.pathsep}{SHELL['PATH']}"
    for shell in ("bash", "zsh", "fish"):
        code = run(tmp_path, programs / "docllm", "completion", shell).stdout
        assert "docllm" in code
        if shutil.which(shell):
            (tmp_path / shell).write_text(code)
            assert run(tmp_path, shell, "-n", shell).stderr == ""
    if shutil.which("fish"):
        done = run(tmp_path, "fish", "-c", FISH, "docllm sta", PATH=path)
        assert done.stdout.split()[:1] == ["status"]

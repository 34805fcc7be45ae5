"""The tutorial: each of its commands is run as it stands there, and its promised output comes."""

import csv
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from tests.servers import DatabaseServer, Kafka

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "tutorial" / "first-batch.md").read_text("utf-8")
HANDLERS = (ROOT / "docs" / "tutorial" / "handlers.md").read_text("utf-8")
TABLE = (ROOT / "docs" / "tutorial" / "pdf-table.md").read_text("utf-8")
EXAMPLES = ROOT / "examples"
EMBEDDED, ON_KAFKA = PAGE.split("\n## The same on Kafka\n")
GROUP, END = "tutorial", "@end\n"
SHIM = """\
#!/bin/sh
[ "$1" = migrate ] && exec %(python)s -m docllm "$@"
exec %(python)s -m docllm "$@" --group %(group)s
"""


def steps(page: str) -> Iterator[tuple[str, list[str]]]:
    """Return commands, each time with the lines that the page promises as their output."""
    commands = ""
    for language, block in re.findall(r"^```(sh|text)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        if language == "sh":
            commands += block
        else:
            yield commands, block.splitlines()
            commands = ""
    yield commands, []


def run(page: str, folder: Path, environ: dict[str, str]) -> None:
    """Type the commands of a page in one shell, and look for each promised line."""
    shell = subprocess.Popen(
        ["bash", "-e"],
        cwd=folder,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert shell.stdin is not None
    assert shell.stdout is not None
    with shell:
        for commands, promised in steps(page):
            shell.stdin.write(f"{commands}\necho {END}")
            shell.stdin.flush()
            output = "".join(takewhile(lambda line: line != END, shell.stdout))
            assert shell.poll() is None, output
            for line in promised:
                parts = [re.escape(part.strip()) for part in line.split("...")]
                assert re.search(".*".join(parts), output), f"{line!r} is not in:\n{output}"
        shell.stdin.close()
    assert shell.returncode == 0


def saved(page: str) -> dict[str, str]:
    """Return the files that a page lets its reader save, by name."""
    pattern = r"^.*?Save this as `([\w.]+)`[^\n]*\n(?:[^\n]+\n)*\n```\w+\n(.*?)^```"
    return dict(re.findall(pattern, page, re.MULTILINE | re.DOTALL))


def examples(name: str) -> dict[str, str]:
    """Return the files of an example, by name."""
    files = (path for path in (EXAMPLES / name).iterdir() if path.is_file())
    return {path.name: path.read_text("utf-8") for path in files}


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which `docllm` is a command, and nothing configures it."""
    program = folder / "bin" / "docllm"
    program.parent.mkdir()
    program.write_text(SHIM % {"python": shlex.quote(sys.executable), "group": GROUP})
    program.chmod(0o755)
    (program.parent / "python").symlink_to(sys.executable)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(folder), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}


def test_the_tutorial_on_embedded_parts(tmp_path: Path) -> None:
    """Load, fail, look, correct, replay, export."""
    run(EMBEDDED, tmp_path, environment(tmp_path))


def test_the_tutorial_on_kafka(
    tmp_path: Path, kafka_server: Kafka, database_server: DatabaseServer
) -> None:
    """The same documents, on Kafka and MariaDB; the servers here are those of the tests."""
    environ = environment(tmp_path) | {
        "DOCLLM_KAFKA_BOOTSTRAP": kafka_server.bootstrap,
        "DOCLLM_DATABASE_URL": database_server.create_database("tutorial"),
    }
    documents, _ = EMBEDDED.split("\n## Load\n")
    page = re.sub(r"^(docker compose|export DOCLLM_KAFKA).*\n", "", ON_KAFKA, flags=re.MULTILINE)

    run(documents + page, tmp_path, environ)


def test_the_first_handlers(tmp_path: Path) -> None:
    """A check, a translation and an extraction in two stages, with the code of the page."""
    work = tmp_path / "docllm-handlers"
    work.mkdir()
    for name, source in saved(HANDLERS).items():
        (work / name).write_text(source)

    run(HANDLERS.replace("mkdir docllm-handlers\n", ""), tmp_path, environment(tmp_path))


def test_a_folder_of_pdfs_becomes_a_table(tmp_path: Path) -> None:
    """A scan without text is a row with its error, and no answer is made up for it."""
    work = tmp_path / "docllm-invoices"
    work.mkdir()
    for name, source in saved(TABLE).items():
        (work / name).write_text(source)

    run(TABLE.replace("mkdir docllm-invoices\n", ""), tmp_path, environment(tmp_path))

    with (work / "invoices.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert len(rows) == 6
    sellers = {name: row["result.seller"] for name, row in rows.items()}
    assert all("Brown & Sons" in sellers[f"invoice-{number}.pdf"] for number in (1, 4))
    assert all(bool(row["error.code"]) == (name == "scan.pdf") for name, row in rows.items())


def test_the_pages_have_the_code_of_the_examples() -> None:
    """Who has the source finds the same files there."""
    assert saved(HANDLERS) == examples("handlers")
    assert saved(TABLE) == examples("invoices")

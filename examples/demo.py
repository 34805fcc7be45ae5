"""The demo: summarize the modules of Python's standard library, from documents to results.

    python examples/demo.py               on this machine alone: SQLite, an embedded bus, no server
    python examples/demo.py --kafka       on Apache Kafka, MariaDB and Redis, started for the demo
    python examples/demo.py --provider    with the environment's provider, which costs money

Without --provider the rehearsal LLM answers with extracts. The demo uses docllm as a person would:
by its commands.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
BATCH = "standard-library"
PROMPT = "Summarize in two sentences what this Python module is for: {document}"
SHOWN = 8
START_S = 180

console = Console(highlight=False)


def main() -> int:
    """Run the demo; return its exit code."""
    parser = argparse.ArgumentParser(
        description="Summarize the modules of Python's standard library."
    )
    parser.add_argument(
        "--kafka", action="store_true", help="on Apache Kafka, MariaDB and Redis, started for this"
    )
    parser.add_argument(
        "--provider",
        action="store_true",
        help="ask the provider that the environment names, not the rehearsal LLM",
    )
    options = parser.parse_args()
    folder = ROOT / "demo" / ("kafka" if options.kafka else "embedded")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not options.kafka:
        return demo(folder, {}, rehearsal=not options.provider)
    with servers(folder) as environment:
        run("producer", "migrate", environment=environment, folder=folder)
        run("producer", "topics", "apply", environment=environment, folder=folder)
        return demo(folder, environment, rehearsal=not options.provider)


def demo(folder: Path, environment: dict[str, str], *, rehearsal: bool) -> int:
    """Load the documents, run the agent, export and show the results."""
    if rehearsal:
        console.print(
            "The rehearsal LLM answers with extracts of the documents; "
            "add --provider to call the provider that your environment names.",
            style="yellow",
        )
    began = time.monotonic()
    documents = f"{sysconfig.get_paths()['stdlib']}/*.py"
    run(
        "producer",
        "load",
        "--documents",
        documents,
        "--prompt",
        PROMPT,
        "--batch",
        BATCH,
        environment=environment,
        folder=folder,
    )
    agent = ["--rehearsal"] if rehearsal else []
    run(
        "agent", "--group", "docllm", "--until-done", *agent, environment=environment, folder=folder
    )
    results = folder / "results.jsonl"
    run(
        "producer", "export", "--batch", BATCH, str(results), environment=environment, folder=folder
    )
    return show(results, time.monotonic() - began, rehearsal=rehearsal)


def show(results: Path, took_s: float, *, rehearsal: bool) -> int:
    """Print a table of results, where they are, and what to do next."""
    rows = [orjson.loads(line) for line in results.read_bytes().splitlines()]
    table = Table(
        "document",
        "status",
        "tokens",
        box=None,
        expand=True,
        title=f"{SHOWN} of {len(rows)} results",
        title_justify="left",
    )
    table.add_column("result", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows[:SHOWN]:
        table.add_row(
            *(
                plain(one)
                for one in (
                    row["id"],
                    row["status"],
                    row["tokens_in"],
                    row["result"] or row["error"],
                )
            )
        )
    console.print("", table)
    succeeded = sum(row["status"] == "succeeded" for row in rows)
    where = results.relative_to(ROOT)
    console.print(
        f"\n{succeeded} of {len(rows)} tasks succeeded in {took_s:.1f} s; all results: {where}\n",
        soft_wrap=True,
    )
    console.print("Next:")
    for command in (
        f"head -3 {where}",
        (
            ". .venv/bin/activate                            # then python -m producer --help, "
            "python -m agent --help"
        ),
        "python -m producer load YOUR.jsonl && python -m agent --until-done"
        + (" --rehearsal" if rehearsal else ""),
    ):
        console.print(f"  {command}", soft_wrap=True, markup=False)
    return 0 if rows and succeeded == len(rows) else 1


def plain(value: object) -> Text:
    """Return foreign text on one line, without markup or characters that a terminal acts on."""
    return Text(
        "".join(letter if letter.isprintable() else " " for letter in " ".join(str(value).split()))
    )


def run(module: str, *arguments: str, environment: dict[str, str], folder: Path) -> None:
    """Run one of docllm's programs, shown as a person would type it.

    The demo ends if the program fails.
    """
    shown = " ".join(f"'{one}'" if " " in one or "*" in one else one for one in arguments)
    console.print(f"\n$ python -m {module} {shown}", style="bold", soft_wrap=True, markup=False)
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DOCLLM_") or name.startswith("DOCLLM_LLM_")
    }
    variables = own | environment | {"PYTHONPATH": str(ROOT)}
    code = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=folder, env=variables, check=False
    ).returncode
    if code:
        console.print(f"python -m {module} ended with exit code {code}", style="red")
        sys.exit(abs(code))


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, str]]:
    """Start Kafka, MariaDB and Redis; yield the variables that name them; stop them."""
    console.print("Starting Apache Kafka, MariaDB and Redis ...")
    with tempfile.TemporaryDirectory() as scratch, (folder / "servers.log").open("wb") as log:
        file = Path(scratch, "servers.env")
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.servers", "up", "--env-file", str(file)],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
        try:
            yield _variables(file, child)
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(timeout=60)


def _variables(file: Path, child: subprocess.Popen[bytes]) -> dict[str, str]:
    deadline = time.monotonic() + START_S
    while not file.exists():
        if child.poll() is not None or time.monotonic() > deadline:
            sys.exit("the servers did not start; see servers.log")
        time.sleep(0.2)
    pairs = (line.removeprefix("export ").split("=", 1) for line in file.read_text().splitlines())
    return dict(pairs)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())

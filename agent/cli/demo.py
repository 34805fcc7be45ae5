"""The demo: summarize the modules of Python's standard library, from documents to results.

It uses docllm as a person would: by its commands. Without `--provider` the rehearsal LLM answers
with extracts.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from docllm.agent.process import child_process
from docllm.schemas.runtime.next_command import as_called

FOLDER = "docllm-demo"
BATCH = "standard-library"
PROMPT = "Summarize in two sentences what this Python module is for: {document}"
SHOWN_RESULTS = 8
_MADE = {"docllm-data", "results.jsonl"}

console = Console(highlight=False)


def run(options: argparse.Namespace) -> int:
    """Run the demo in a folder of its own in the current folder; return its exit code."""
    folder = Path.cwd() / FOLDER
    if folder.exists() and not {path.name for path in folder.iterdir()} <= _MADE:
        sys.stderr.write(f"error: {folder} holds files that no demo made; rename the folder\n")
        return 2
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return demo(folder, {}, rehearsal=not options.provider)


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
    results = folder / "results.jsonl"
    agent = ["--rehearsal"] if rehearsal else []
    for command in (
        ["load", "--documents", documents, "--prompt", PROMPT, "--batch", BATCH],
        ["agent", "--group", "docllm", "--until-done", *agent],
        ["export", "--batch", BATCH, str(results)],
    ):
        run_command(*command, environment=environment, folder=folder)
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
        title=f"{SHOWN_RESULTS} of {len(rows)} results",
        title_justify="left",
    )
    table.add_column("result", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows[:SHOWN_RESULTS]:
        result = row["result"] or row["error"]
        table.add_row(*map(plain, (row["id"], row["status"], row["tokens_in"], result)))
    console.print("", table)
    succeeded = sum(row["status"] == "succeeded" for row in rows)
    where = os.path.relpath(results)
    console.print(
        f"\n{succeeded} of {len(rows)} tasks succeeded in {took_s:.1f} s; all results: {where}\n",
        soft_wrap=True,
    )
    console.print("Next:")
    run_yours = "docllm agent --until-done" + (" --rehearsal" if rehearsal else "")
    for command in (
        f"head -3 {where}",
        "docllm --help",
        f"docllm load YOUR.jsonl && {run_yours}",
    ):
        console.print(f"  {as_called(command)}", soft_wrap=True, markup=False)
    return 0 if rows and succeeded == len(rows) else 1


def plain(value: object) -> Text:
    """Return untrusted text on one line, without markup and without terminal control characters."""
    return Text(
        "".join(letter if letter.isprintable() else " " for letter in " ".join(str(value).split()))
    )


def run_command(*arguments: str, environment: dict[str, str], folder: Path) -> None:
    """Run one of docllm's commands, shown as a person would type it.

    The demo ends if the command fails.
    """
    command = as_called(shlex.join(["docllm", *arguments]))
    console.print(f"\n$ {command}", style="bold", soft_wrap=True, markup=False)
    own = {
        name: value
        for name, value in (child_process.environment() or os.environ).items()
        if not name.startswith("DOCLLM_") or name.startswith("DOCLLM_LLM_")
    }
    code = subprocess.run(  # noqa: S603 - a program of our own
        [*child_process.INTERPRETER, "docllm", *arguments],
        cwd=folder,
        env=own | environment,
        check=False,
    ).returncode
    if code:
        console.print(f"{command} ended with exit code {code}", style="red", markup=False)
        sys.exit(abs(code))

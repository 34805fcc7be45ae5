"""Draw docs/images/status.svg, or FILE, from a run on a terminal: `python -m tools.picture [FILE]`.

It loads documents, starts an agent with the rehearsal LLM, and shows `status` in mid-run. The
picture always has the same size, and names no other host.
"""

import io
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "status.svg"
COLUMNS, LINES = 100, 12
DOCUMENTS, SHOWN_AFTER_S = 900, 8.0
PROMPT = "Summarize: {document}"
LOAD = ("load", "--documents", "reports/*.txt", "--prompt", PROMPT, "--batch", "reports")
FAULTS = "--latency 0.3-1.2 --faults 400=0.01,429=0.02"
# The fonts of the reader's own machine instead of those that Rich would load from a network.
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> int:
    """Run the programs and write the picture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_documents(folder)
        screen = [_typed(shlex.join(LOAD)), *_lines(_output(folder, *LOAD))[-1:]]
        screen += [_typed("agent --until-done &"), _typed("status")]
        with _agent(folder):
            time.sleep(SHOWN_AFTER_S)
            screen += _lines(_output(folder, "status", "--once"))
    picture = Path(*sys.argv[1:2]) if sys.argv[1:] else PICTURE
    picture.write_text(drawn(screen), "utf-8")
    return 0


def drawn(screen: list[Text]) -> str:
    """Return the picture of these lines, cut or filled up to the size of all pictures."""
    console = Console(
        width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True, color_system="standard"
    )
    for line in (*screen, *[Text()] * LINES)[:LINES]:
        console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    svg = console.export_svg(title="docllm", unique_id="docllm")
    svg = re.sub(r"<!--.*?-->\s*", "", svg)
    return FONT.sub("", svg).replace("Fira Code", "ui-monospace")


def _typed(arguments: str) -> Text:
    return Text(f"$ docllm {arguments}", style="bold")


def _lines(output: str) -> list[Text]:
    return [Text.from_ansi(line) for line in output.replace("\r", "").splitlines()]


def _write_documents(folder: Path) -> None:
    (folder / "reports").mkdir()
    for number in range(DOCUMENTS):
        text = (
            f"Report {number}. Sales rose by {number % 9} percent. The branch hired two people.\n"
        )
        (folder / "reports" / f"{number:04}.txt").write_text(text * 4, "utf-8")


def _output(folder: Path, *arguments: str) -> str:
    """Return what the program writes to a terminal."""
    master, slave = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-m", "producer", *arguments],
        cwd=folder, env=_environ(), stdin=slave, stdout=slave, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    pieces = []
    try:
        while piece := os.read(master, 65_536):
            pieces.append(piece)
    except OSError:  # the program has closed its terminal
        program.wait()
    os.close(master)
    return b"".join(pieces).decode()


@contextmanager
def _agent(folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "agent", "--until-done", "--rehearsal"]
    agent = subprocess.Popen(
        [*command, "--rehearsal-options", FAULTS],
        cwd=folder, env=_environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        agent.terminate()
        agent.wait()


def _environ() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return kept | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}


if __name__ == "__main__":
    sys.exit(main())

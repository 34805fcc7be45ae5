"""The demo in a clone, which can also start the servers that docllm runs on at scale.

    python examples/demo.py               on this machine alone: SQLite, an embedded bus, no server
    python examples/demo.py --kafka       on Apache Kafka, MariaDB and Redis, started for the demo
    python examples/demo.py --provider    with the environment's provider, which costs money

An installed docllm has the same demo as `docllm demo`.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from docllm.agent.cli.demo import console, demo, run_command  # noqa: E402
from docllm.agent.cli.docllm_parser import add_demo_options  # noqa: E402 - found in the clone
from docllm.producer.cli.options.strict_parser import Parser  # noqa: E402

START_S = 180


def main() -> int:
    """Run the demo; return its exit code."""
    parser = Parser(description="Summarize the modules of Python's standard library.")
    parser.add_argument(
        "--kafka", action="store_true", help="on Apache Kafka, MariaDB and Redis, started for this"
    )
    add_demo_options(parser)
    options = parser.parse_args()
    folder = ROOT / "demo" / ("kafka" if options.kafka else "embedded")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not options.kafka:
        return demo(folder, {}, rehearsal=not options.provider, story=options.story)
    with servers(folder) as environment:
        run_command("migrate", environment=environment, folder=folder)
        if options.provider:  # a story makes topics of its own, with tiers of seconds
            run_command("topics", "apply", environment=environment, folder=folder)
        return demo(folder, environment, rehearsal=not options.provider, story=options.story)


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

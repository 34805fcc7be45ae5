"""`python -m tests.faults`: a seeded plan of faults against real servers, then one judge.

Exit codes: 0 if every promise held and every fault had an effect, 1 if not. After a 1, all evidence
is kept for an investigation. 2 if a server is not installed.
"""

import argparse
import os
import pickle
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from docllm.schemas.version import VERSION
from tests.faults import report, servers
from tests.faults.faultlog import FaultLog
from tests.faults.judge import Judgement, judge
from tests.faults.plan import EVERY_S, KINDS, draw
from tests.faults.run import run
from tests.faults.site import Site
from tests.servers import ServerMissingError, kafka

TASKS_A_MINUTE = 600
SEEN = "seen.pickle"


def main(argv: Sequence[str]) -> int:
    """Run and report; return the exit code."""
    options = _parser().parse_args(argv)
    if options.again is not None:
        return _again(options.again)
    servers.go_apart(list(argv))
    kinds = options.kinds or [
        name for name, kind in KINDS.items() if servers.can_mount() or not kind.root
    ]
    plan = draw(options.seed, options.minutes, kinds, options.every)
    folder = Path(tempfile.mkdtemp(prefix="docllm-faults-"))
    _say(
        f"seed {options.seed}: {len(plan)} faults of {len(set(kinds))} kinds in "
        f"{options.minutes:g} minutes; everything is in {folder}"
    )
    began_s = time.monotonic()
    with (
        FaultLog(folder / "faults.jsonl") as faultlog,
        Site(folder=folder, faultlog=faultlog, limited=bool(options.seed % 2)) as site,
    ):
        tasks = options.tasks or round(options.minutes * TASKS_A_MINUTE)
        evidence = run(site, plan, minutes=options.minutes, tasks=tasks, seed=options.seed)
    known = _known(options.seed, (time.monotonic() - began_s) / 60)
    (folder / SEEN).write_bytes(pickle.dumps((evidence, known)))
    judgement = judge(evidence, figures=known)
    _write(judgement, folder, options.report)
    for line in report.lines(judgement):
        _say(line)
    kept = options.keep or not judgement.good
    if site.disk is not None:
        if kept:
            shutil.copytree(site.disk.folder, folder / "database-files")
        site.disk.close()
    if not kept:
        shutil.rmtree(folder)
        return 0
    _say(
        f"kept in {folder}: faults.jsonl, report.json, seen.pickle, programs/ (their output, "
        "the LLM's log), kafka/, database-files/"
    )
    return 0 if judgement.good else 1


def _again(folder: Path) -> int:
    """Judge the kept evidence of a run again."""
    evidence, known = pickle.loads((folder / SEEN).read_bytes())  # noqa: S301 - written by ourselves
    judgement = judge(evidence, figures=known)
    for line in report.lines(judgement):
        _say(line)
    return 0 if judgement.good else 1


def _known(seed: int, minutes: float) -> dict[str, Any]:
    """Return the facts about a run that need no evidence."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "minutes": round(minutes, 1),
        "docllm": VERSION,
        "kafka": kafka.VERSION,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def _write(judgement: Judgement, folder: Path, path: Path | None) -> None:
    for file in filter(None, (folder / "report.json", path)):
        file.write_text(report.as_json(judgement))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="about how long the run takes (10)"
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same plan (1)")
    parser.add_argument(
        "--tasks", type=int, help=f"least number of tasks to load ({TASKS_A_MINUTE} a minute)"
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=KINDS,
        metavar="KIND",
        help=f"only these kinds of faults: {', '.join(KINDS)}",
    )
    parser.add_argument(
        "--every",
        type=float,
        default=EVERY_S,
        metavar="S",
        help=f"seconds between two faults, at most ({EVERY_S:g})",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write the figures to this file too, as JSON"
    )
    parser.add_argument(
        "--again", type=Path, metavar="FOLDER", help="only judge the kept files of a run again"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep all files, even if nothing was found"
    )
    return parser


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ServerMissingError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)

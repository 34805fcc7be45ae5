"""Measures what the text of a PDF costs: `python -m bench.documents [--pages N]`.

The pages are converted by a converting process, as agents let them be, and by pypdf alone. CPU is
user and system time, of the process with its start.
"""

import argparse
import asyncio
import io
import sys
import time
from collections.abc import Callable, Iterator
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

from pypdf import PdfReader

from bench.table import Figure, render
from docllm.agent.documents.conversion.converters import Converters
from docllm.schemas.documents.kind import Kind
from docllm.schemas.runtime.executors import InlineExecutor
from tests.support.made_documents import made_pdf

GOAL_CPU_MS = 5.0
_LINE = "Line {} of page {}: the harvest of this year costs more than the last one did."
_LINES = 45


def main(argv: list[str]) -> int:
    """Print a table; return 1 when a page costs more than the goal."""
    parser = argparse.ArgumentParser("python -m bench.documents", description=__doc__)
    parser.add_argument("--pages", type=int, default=2000, metavar="N", help="pages (2000)")
    pages: int = parser.parse_args(argv).pages
    raw = made_pdf(*[[_LINE.format(line, page) for line in range(_LINES)] for page in range(pages)])
    figures = [
        *_measured("converting process", pages, lambda: _converted(raw), RUSAGE_CHILDREN),
        *_measured("pypdf", pages, lambda: _by_pypdf(raw), RUSAGE_SELF),
    ]
    sys.stdout.write(render(figures) + "\n")
    return 0 if all(figure.reached for figure in figures) else 1


def _measured(parts: str, pages: int, convert: Callable[[], int], who: int) -> Iterator[Figure]:
    began_s, began_cpu_s = time.monotonic(), _cpu_s(who)
    if not convert():
        raise ValueError(parts)
    wall_s, cpu_s = time.monotonic() - began_s, _cpu_s(who) - began_cpu_s
    goal = GOAL_CPU_MS if who == RUSAGE_CHILDREN else None
    yield Figure("pages of a PDF", parts, pages / wall_s, "pages/s")
    yield Figure("CPU of a page", parts, cpu_s * 1000 / pages, "ms", goal)


def _cpu_s(who: int) -> float:
    used = getrusage(who)
    return used.ru_utime + used.ru_stime


def _converted(raw: bytes) -> int:
    async def convert() -> int:
        converters = Converters(thread=InlineExecutor(), max_processes=1)
        try:
            return len((await converters.text(Kind.PDF, raw)).text)
        finally:
            await converters.close()

    return asyncio.run(convert())


def _by_pypdf(raw: bytes) -> int:
    return sum(len(page.extract_text()) for page in PdfReader(io.BytesIO(raw)).pages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Scrapes the exporter and the agents all the while, as Prometheus does, and keeps their counters.

A page is asked for every few seconds. What does not answer is asked again the next time.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.faults.exported import START, Samples, Series
from tests.faults.site import EXPORTER, Site, wait_for

EVERY_S, ANSWER_S = 2.0, 2.0
LAST_S = 120.0  # for a reading after the end
_COUNTED = {"counter", "histogram"}
_LISTENS = "health and metrics: http"  # what an agent logs whenever it starts
_SNAPSHOT = "docllm_snapshot_timestamp_seconds"


def samples(page: str, *, counted: bool = False) -> Samples:
    """Return docllm's samples of a page; only counters, and the counts of histograms, if asked."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(page)
        if family.name.startswith("docllm_") and (not counted or family.type in _COUNTED)
        for sample in family.samples
        if not counted or sample.name.endswith(("_total", "_count"))
    }


class Scrapes:
    """Scrapes the programs that sit at the site's pages, until it is asked to stop."""

    def __init__(self, *, site: Site) -> None:
        self._site = site
        self._series: dict[str, Series] = defaultdict(Series)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scrapes", daemon=True)

    def begin(self) -> None:
        """Start to scrape."""
        self._thread.start()

    def end(self) -> tuple[dict[str, Series], Samples]:
        """Return the series by program, and what the exporter shows now that all work is done.

        The samples are empty if the exporter makes no reading in time.
        """
        self._stop.set()
        self._thread.join()
        over_s = time.time()
        last: Samples = {}

        def has_read() -> bool:
            nonlocal last
            last = samples(self._page(EXPORTER))
            return any(key[0] == _SNAPSHOT and at_s > over_s for key, at_s in last.items())

        has_answered = wait_for(lambda: _quiet(has_read), LAST_S, every_s=1.0)
        return dict(self._series), last if has_answered else {}

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            for seat in self._site.pages:
                _quiet(partial(self._look, seat))

    def _look(self, seat: str) -> None:
        """Keep what the program in a seat shows, if the same one sits there afterwards."""
        before = self._source(seat)
        page = self._page(seat)
        if before and before == self._source(seat):
            self._series[before].add(time.time(), samples(page, counted=True))

    def _source(self, seat: str) -> str:
        """Return what the counters of a seat belong to; empty while nobody sits there.

        An agent whose clock was set back starts anew within its process, and counts anew.
        """
        program = self._site.seats.program_in(seat)
        if program is None or seat == EXPORTER:
            return seat if program is not None else ""
        return f"{program.name}{START}{program.err.count(_LISTENS)}"

    def _page(self, seat: str) -> str:
        url = f"http://127.0.0.1:{self._site.pages[seat]}/metrics"
        with urlopen(url, timeout=ANSWER_S) as answer:
            return str(answer.read(), "utf-8")


def _quiet(look: Callable[[], bool | None]) -> bool:
    """Return the result of a look at a program; False while it does not answer."""
    try:
        return bool(look())
    except (OSError, ValueError):  # it was killed, is frozen, or ended in the middle of a page
        return False

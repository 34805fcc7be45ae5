"""Prometheus as one process, which scrapes the given addresses each second."""

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

from tests.servers.process import Server, program

PACKAGE = "prometheus"
_DURATION = re.compile(r"\b(\d+)([mh])\b")
_MINUTES = re.compile(r"\b(\d+) \* 60\b")  # of a value in seconds, as rules write it
_UNIT_S = {"m": 1, "h": 60}


def faster(rules: str) -> str:
    """Return alert rules in which each minute is a second; days stay."""
    rules = _DURATION.sub(lambda found: f"{int(found[1]) * _UNIT_S[found[2]]}s", rules)
    return _MINUTES.sub(r"\1", rules)


class Prometheus(Server):
    """A single Prometheus that evaluates the rules of a file each second."""

    name = "prometheus"

    def __init__(
        self, *, folder: Path, rules: str, targets: Sequence[str] = (), alertmanager: str = ""
    ) -> None:
        super().__init__(folder=folder)
        self._rules = rules
        self._targets = list(targets)
        self._watching = Lock()
        self._alertmanagers = [alertmanager] if alertmanager else []

    def prepare(self) -> None:
        """Write the configuration; Prometheus makes its data itself."""
        program("prometheus", package=PACKAGE)
        (self.folder / "rules.yml").write_text(self._rules)
        self._watch()
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": self._alertmanagers}]}]},
            "scrape_configs": [
                {
                    "job_name": "docllm",
                    "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}],
                }
            ],
        }
        (self.folder / "prometheus.yml").write_text(json.dumps(configuration))

    def watch(self, *targets: str) -> None:
        """Scrape more addresses from now on; any thread may ask for it."""
        with self._watching:
            self._targets += targets
            self._watch()

    def _watch(self) -> None:
        part = self.folder / "targets.part"
        part.write_text(json.dumps([{"targets": self._targets}]))
        part.replace(self.folder / "targets.json")

    def command(self) -> Sequence[str]:
        """Return the server's command line."""
        return [
            program("prometheus", package=PACKAGE),
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def ready(self) -> bool:
        """Return whether the server is ready."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def firing(self, group: str) -> set[str]:
        """Return the names of a group's alerts that burn now."""
        alerts = self._get("alerts")["alerts"]
        return {
            alert["labels"]["alertname"]
            for alert in alerts
            if alert["state"] == "firing" and alert["labels"].get("group") == group
        }

    def fired(self, group: str) -> set[str]:
        """Return the names of all alerts of a group that have ever burned."""
        query = f'count_over_time(ALERTS{{alertstate="firing",group="{group}"}}[1h])'
        return {found["metric"]["alertname"] for found in self.query(query)}

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression, as they are now."""
        found: list[dict[str, Any]] = self._get(f"query?query={quote(expression)}")["result"]
        return found

    def has_had(self, expression: str, since_s: float) -> bool:
        """Return whether an expression had a value at any second since a Unix time."""
        span = f"start={since_s}&end={time.time()}&step=1"
        return bool(self._get(f"query_range?query={quote(expression)}&{span}")["result"])

    def value(self, query: str) -> float | None:
        """Return the value of a query; None if it has none."""
        found = self.query(query)
        return float(found[0]["value"][1]) if found else None

    def _get(self, path: str) -> Any:
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

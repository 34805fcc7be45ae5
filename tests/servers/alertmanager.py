"""Alertmanager as one process, and a receiver of what it sends.

Tested by tests/integration/monitoring/test_alerts.py.
"""

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from tests.servers.process import Server, program

PACKAGE = "prometheus-alertmanager"
_WAITS = re.compile(r"(group_wait|group_interval): \w+")


@dataclass(frozen=True, slots=True)
class Message:
    """One alert of one message: who got it, and whether it burns or has ended."""

    receiver: str
    alert: str
    group: str
    burns: bool


class Receiver:
    """Takes the messages of an Alertmanager, on a free port."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        taken = self.messages

        class Handler(BaseHTTPRequestHandler):
            """Keeps each message."""

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                taken.extend(
                    Message(
                        self.path.removeprefix("/"),
                        alert["labels"]["alertname"],
                        alert["labels"].get("group", ""),
                        alert["status"] == "firing",
                    )
                    for alert in body["alerts"]
                )
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Write nothing to the tests' output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Alertmanager(Server):
    """A single Alertmanager with a configuration whose messages go to `receiver` at once."""

    name = "alertmanager"

    def __init__(self, *, folder: Path, configuration: str, receiver: Receiver) -> None:
        super().__init__(folder=folder)
        at_once = _WAITS.sub(r"\1: 1s", configuration)
        self._configuration = at_once.replace("127.0.0.1:9095", receiver.address)

    def prepare(self) -> None:
        """Write the configuration."""
        program("prometheus-alertmanager", package=PACKAGE)
        (self.folder / "alertmanager.yml").write_text(self._configuration)

    def command(self) -> Sequence[str]:
        """Return the server's command line; it speaks to no other Alertmanager."""
        return [
            program("prometheus-alertmanager", package=PACKAGE),
            f"--config.file={self.folder / 'alertmanager.yml'}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]

    def ready(self) -> bool:
        """Return whether the server is ready."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def post(self, *alerts: dict[str, str]) -> None:
        """Raise alerts with these labels, as a Prometheus would."""
        body: list[Any] = [{"labels": labels} for labels in alerts]
        request = Request(
            f"http://127.0.0.1:{self.port}/api/v2/alerts",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=10):  # noqa: S310 - our own
            pass

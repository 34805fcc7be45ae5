"""Limiters that other people wrote, before a rehearsal LLM: nginx and HAProxy from Debian.

Each writes a line for each call to its log: when it ended, its status, and how long it took.
"""

import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.program import BenchError
from tests.servers.process import Server, ServerFailedError, listens

PER_MINUTE = 300
_NGINX = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
    log_format calls '$msec $status $request_time';
    access_log {folder}/calls.log calls;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    limit_req_zone $server_name zone=all:1m rate={per_minute}r/m;
    limit_req_status 429;
    server {{
        listen 127.0.0.1:{port};
        server_name llm;
        location / {{
            limit_req zone=all{burst};
            proxy_pass http://{upstream};
        }}
    }}
}}
"""
_HAPROXY = """
global
    log stdout format raw local0
    stats socket {folder}/admin.sock mode 600 level admin
    set-var proc.most int({most})
    maxconn 4096
defaults
    mode http
    log global
    timeout connect 5s
    timeout client 600s
    timeout server 600s
    log-format "%Ts.%ms %ST %Ta"
frontend calls
    bind 127.0.0.1:{port}
    {rules}
    default_backend llm
backend llm
    server llm {upstream} maxconn 4096
"""
# A call counts although it is refused, so that refused calls keep the limit used up.
_WINDOW = """stick-table type integer size 10 expire 2m store http_req_rate(60s)
    http-request track-sc0 always_true
    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {per_minute} }}"""
_IN_FLIGHT = "http-request deny deny_status 429 if { be_conn(llm),sub(proc.most) ge 0 }"


@dataclass(frozen=True, slots=True)
class Logged:
    """A call at the limiter: when it ended, whether it was refused, and how long it took."""

    at_s: float
    refused: bool
    lasted_s: float


def _program(name: str, package: str) -> str:
    path = shutil.which(name, path="/usr/sbin:/usr/local/sbin") or shutil.which(name)
    if path is None:
        raise BenchError(f"{name} is not installed; on Debian: apt-get install {package}")
    return path


class Limiter(Server):
    """A limiter before the server at `upstream`, which is a host and a port.

    `unit_s` is the unit of the durations in its log.
    """

    unit_s = 1.0

    def __init__(self, *, folder: Path, upstream: str) -> None:
        super().__init__(folder=folder)
        self._upstream = upstream

    @property
    def url(self) -> str:
        """Return the base URL for agents."""
        return f"http://127.0.0.1:{self.port}/v1"

    def ready(self) -> bool:
        """Return whether it accepts connections."""
        return listens(self.port)

    def calls(self) -> list[Logged]:
        """Return the calls that have ended, in this order."""
        return [
            Logged(float(words[0]), words[1] == "429", float(words[2]) * self.unit_s)
            for line in self._calls_log.read_text().splitlines()
            if len(words := line.split()) == 3 and words[1] in {"200", "429"}  # noqa: PLR2004
        ]

    @property
    def _calls_log(self) -> Path:
        return self.log

    @property
    def _config(self) -> Path:
        return self.folder / f"{self.name}.conf"


class Nginx(Limiter):
    """nginx with `limit_req`: a token bucket, no header, and refused calls cost nothing."""

    name = "nginx"
    burst = " burst=10 nodelay"

    def prepare(self) -> None:
        """Write its configuration."""
        text = _NGINX.format(
            folder=self.folder,
            port=self.port,
            upstream=self._upstream,
            per_minute=PER_MINUTE,
            burst=self.burst,
        )
        self._config.write_text(text)

    def command(self) -> Sequence[str]:
        """Return its command line."""
        server = _program("nginx", "nginx-light")
        return [server, "-p", str(self.folder), "-c", str(self._config), "-e", "stderr"]

    @property
    def _calls_log(self) -> Path:
        return self.folder / "calls.log"


class EvenNginx(Nginx):
    """nginx that lets one call pass at a time: a call that comes too early is refused."""

    name = "nginx-without-burst"
    burst = ""


class HAProxy(Limiter):
    """HAProxy with the calls of the last minute, refused ones too; no header."""

    name = "haproxy"
    unit_s = 0.001
    rules = _WINDOW.format(per_minute=PER_MINUTE)
    most = 0

    def prepare(self) -> None:
        """Write its configuration."""
        text = _HAPROXY.format(
            folder=self.folder,
            port=self.port,
            upstream=self._upstream,
            rules=self.rules,
            most=self.most,
        )
        self._config.write_text(text)

    def command(self) -> Sequence[str]:
        """Return its command line."""
        return [_program("haproxy", "haproxy"), "-db", "-f", str(self._config)]


class InFlight(HAProxy):
    """HAProxy that refuses calls above a number at once, which can be changed; no header."""

    name = "in-flight"
    rules = _IN_FLIGHT
    most = 200

    def allow(self, most: int) -> None:
        """Allow another number of calls at once."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self.folder / "admin.sock"))
            admin.sendall(f"experimental-mode on; set var proc.most int({most})\n".encode())
            if answer := admin.makefile().read().strip():
                raise ServerFailedError(f"{self.name} did not take the new limit: {answer}")

"""Docker in a network of its own: neither its bridge nor a published port is the machine's."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from tests.servers import docker_compose, kafka
from tests.servers.process import Server, ServerFailedError, ServerMissingError, program

# Networks for tests (RFC 2544, RFC 5737), which no machine is in.
BRIDGE = "198.18.0.1/24"
POOL = "base=198.18.128.0/17,size=24"
UPLINK = "198.51.100.0/24"
NAME_SERVER = "198.51.100.3"  # of the uplink, which asks the machine's own
PERSON = 1000  # the user and group of a person who types commands
STOP_S = 60.0

# Mounts that only Docker sees. Images and volumes are in memory, 3 GB of it, so that nothing has to
# be removed; the others hide the sockets of containerd and a key.
APART = """
for folder in "$0" /run /etc/docker; do mount -t tmpfs apart "$folder"; done
ip link set lo up
exec "$@"
"""


class Docker(Server):
    """A Docker daemon. `folder` must have a short path, because there are sockets in it."""

    name = "dockerd"

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables with which `docker` finds this daemon, and Compose."""
        return {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.folder),
            "DOCKER_HOST": f"unix://{self._socket}",
            "DOCKER_CONFIG": str(self.folder / "client"),
            "DOCKER_BUILDKIT": "1",
        }

    def prepare(self) -> None:
        """Lay out the plugins of the client."""
        for name, package in (
            ("dockerd", "docker.io"),
            ("slirp4netns", "slirp4netns"),
            ("mmdebstrap", "mmdebstrap"),
            ("ip", "iproute2"),
            ("unshare", "util-linux"),
        ):
            program(name, package=package)
        if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
            raise ServerMissingError("Docker needs root and /dev/net/tun")
        if not kafka.libraries().exists():
            raise ServerMissingError(
                "the jars of Apache Kafka are not there; run: python -m tests.servers install"
            )
        self._data.mkdir()
        plugins = self.folder / "client/cli-plugins"
        # A copy: the person who types the commands may not reach the folder of downloads.
        shutil.copytree(docker_compose.plugins(), plugins, dirs_exist_ok=True)
        os.chown(plugins.parent, PERSON, PERSON)

    def command(self) -> Sequence[str]:
        """Return the daemon's command line: the first process of a process namespace."""
        daemon = [
            "dockerd",
            f"--data-root={self._data}",
            f"--exec-root={self.folder}/exec",
            f"--pidfile={self.folder}/pid",
            f"--host=unix://{self._socket}",
            "--storage-driver=overlay2",
            f"--bip={BRIDGE}",
            f"--default-address-pool={POOL}",
            f"--dns={NAME_SERVER}",
        ]
        own = ["--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        return ["unshare", *own, "sh", "-euc", APART, str(self._data), *daemon]

    def ready(self) -> bool:
        """Return whether the daemon answers; whoever may enter its folder may use it."""
        if self.ask("version").returncode != 0:
            return False
        self._socket.chmod(0o666)
        return True

    def stop(self, *, timeout_s: float = STOP_S) -> None:
        """End all containers and the daemon; what is left of either ends with its namespaces."""
        if self._process is None:
            return
        try:
            self.ask("container", "rm", "--force", *self.ask("ps", "-aq").stdout.split())
            for daemon in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
                os.kill(int(daemon), signal.SIGTERM)  # `unshare` passes no signal on
            self._process.wait(timeout_s)
        except (OSError, subprocess.TimeoutExpired, ServerFailedError):
            pass
        finally:
            self.kill()

    def ask(self, *words: str | Path, timeout_s: float = 300.0, stdin: str = "") -> Any:
        """Run `docker` and return what it did, as text."""
        return subprocess.run(
            ["docker", *words],
            env=self.environ,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def do(self, *words: str | Path, timeout_s: float = 300.0) -> str:
        """Run `docker`, which must succeed, and return what it printed."""
        done = self.ask(*words, timeout_s=timeout_s)
        assert done.returncode == 0, f"docker {words}: {done.stdout[-3000:]}{done.stderr[-5000:]}"
        return str(done.stdout).strip()

    def words(self, *words: str | Path) -> list[str]:
        """Return the words that a command of `docker` prints."""
        return self.do(*words).split()

    def facts(self, *words: str) -> Any:
        """Return what `docker inspect` says about one thing."""
        (found,) = orjson.loads(self.do("inspect", *words))
        return found

    def typed(
        self, text: str, *, folder: Path, umask: int = 0o022, **environ: str
    ) -> "subprocess.CompletedProcess[str]":
        """Return what the lines of a shell did that a person types who is not root."""
        return subprocess.run(
            ["sh", "-euc", text],
            env=self.environ | {"HOME": str(folder)} | environ,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            user=PERSON,
            group=PERSON,
            extra_groups=[],
            umask=umask,
        )

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _socket(self) -> Path:
        return self.folder / "socket"


class Uplink(Server):
    """The way out of Docker's network, for the packages of Python that a build installs."""

    name = "slirp4netns"

    def __init__(self, *, folder: Path, docker: Docker) -> None:
        super().__init__(folder=folder)
        self._docker = docker

    def prepare(self) -> None:
        """Need nothing."""

    def command(self) -> Sequence[str]:
        """Return the command line; nothing on the machine's own loopback can be reached."""
        options = ["--configure", "--mtu=65520", "--disable-host-loopback", f"--cidr={UPLINK}"]
        return [
            program("slirp4netns", package="slirp4netns"),
            *options,
            str(self._docker.pid),
            "tap0",
        ]

    def ready(self) -> bool:
        """Return whether Docker's network has its device and a route."""
        return "tap0" in Path(f"/proc/{self._docker.pid}/net/route").read_text()

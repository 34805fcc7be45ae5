"""The servers of a fault run: a Kafka behind doors, and separate disks that can be full."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.servers import Kafka
from tests.servers.process import free_port

DISK_MB = 3000
FILL_TRIES = 20
APART = "DOCLLM_TEST_APART"


class DoorKafka(Kafka):
    """A Kafka node with a listener for each door.

    Clients get the door's address and not the broker's. `doors` maps a listener's name to the port
    that its clients get. `behind` has the ports to which the doors lead.
    """

    def __init__(self, *, folder: Path, doors: Mapping[str, int]) -> None:
        super().__init__(folder=folder)
        self._doors = doors
        self.behind = {name: free_port() for name in doors}

    def _settings(self) -> dict[str, str]:
        usual = super()._settings()
        names = ["PLAINTEXT", "CONTROLLER", *self._doors]
        addresses = [f"{name}://127.0.0.1:{port}" for name, port in self._doors.items()]
        real = [f"{name}://127.0.0.1:{port}" for name, port in self.behind.items()]
        return usual | {
            "listeners": ",".join([usual["listeners"], *real]),
            "advertised.listeners": ",".join([f"PLAINTEXT://{self.bootstrap}", *addresses]),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "inter.broker.listener.name": "PLAINTEXT",
        }


class Disk:
    """A file system in memory whose size can be changed while it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)], check=True
        )

    def fill(self) -> None:
        """Leave no space beyond the used one.

        Programs that write meanwhile use more, and then the smaller size is refused.
        """
        for _ in range(FILL_TRIES):
            if self._resize(f"{self._used_kb()}k"):
                return
        raise RuntimeError(f"somebody writes to {self.folder} all the time")

    def clear(self) -> None:
        """Make space again."""
        if not self._resize(f"{DISK_MB}m"):
            raise RuntimeError(f"{self.folder} cannot be resized")

    def close(self) -> None:
        """Delete everything on it."""
        subprocess.run(["umount", str(self.folder)], check=True)

    def _used_kb(self) -> int:
        space = os.statvfs(self.folder)
        return (space.f_blocks - space.f_bfree) * space.f_frsize // 1024

    def _resize(self, size: str) -> bool:
        done = subprocess.run(
            ["mount", "-o", f"remount,size={size}", str(self.folder)],
            capture_output=True,
            check=False,
        )
        return done.returncode == 0


def can_mount() -> bool:
    """Return whether this process may mount file systems that end with it."""
    return APART in os.environ


def go_apart(arguments: list[str]) -> None:
    """As root, run this program again in a mount namespace of its own.

    Nobody else sees its mounts, and they end with it. Returns if that is impossible.
    """
    if (
        APART in os.environ
        or os.geteuid() != 0
        or subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0
    ):
        return
    command = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        sys.executable,
        "-m",
        "tests.faults",
        *arguments,
    ]
    # It becomes that program.
    os.execvpe(command[0], command, os.environ | {APART: "1"})  # noqa: S606

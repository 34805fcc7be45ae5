"""Installs what the servers need.

Debian packages come by apt-get and Kafka's jars by Maven. MySQL and Docker Compose are unpacked
into folders of their own, and kustomize is built by Go.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.servers import docker_compose, kafka, kustomize, mysql
from tests.servers.process import ServerMissingError, program

BUSY_S = 600.0
RETRY_S = 2.0
_LOCKED = re.compile(r"Could not get lock .*")
# Each program and its Debian package.
PROGRAMS = {
    "mariadbd": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",
    "mariadb-dump": "mariadb-client",  # backs a ledger up, as a person would
    "redis-server": "redis-server",
    "java": "default-jre-headless",
    "mvn": "maven",
    "dockerd": "docker.io",  # builds the image and starts the compose file
    "slirp4netns": "slirp4netns",  # its way out of a network of its own
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",  # makes the images of base and servers
    "prometheus": "prometheus",  # evaluates the alert rules; its promtool tests them
    "amtool": "prometheus-alertmanager",  # groups and routes them
    "faketime": "faketime",  # fault runs give an agent a clock that jumps
    "chromium": "chromium",  # shows the pages of the site
    "cc": "build-essential",  # builds the waits that faketime's clock lacks
}


def install() -> None:
    """Install what is missing and report it.

    If that needs another user or system, end the program with a command to type.
    """
    packages = missing()
    if packages:
        _apt(packages)
    with ThreadPoolExecutor() as pool:  # they wait for different servers of downloads
        of_kafka = pool.submit(kafka.fetch)
        others = {
            "MySQL": pool.submit(mysql.fetch),
            "kustomize": pool.submit(kustomize.fetch),
            "Docker Compose": pool.submit(docker_compose.fetch),
        }
    try:
        of_kafka.result()
    except ServerMissingError as error:
        sys.exit(str(error))
    _say(f"ready: Apache Kafka {kafka.VERSION}, MariaDB, Redis")
    for name, fetched in others.items():
        try:
            fetched.result()
        except ServerMissingError as error:
            _say(f"without {name}, whose tests will be skipped, or fail in CI: {error}")
        else:
            _say(f"ready: {name}")


def missing() -> list[str]:
    """Return the Debian packages whose program is missing."""
    return [package for name, package in PROGRAMS.items() if not _there(name, package)]


def _there(name: str, package: str) -> bool:
    try:
        program(name, package=package)
    except ServerMissingError:
        return False
    return True


def _apt(packages: list[str]) -> None:
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if shutil.which("apt-get") is None:
        sys.exit(
            f"the tests need these programs: {', '.join(sorted(PROGRAMS))}; install them and "
            "run this again"
        )
    if os.geteuid() != 0:
        sys.exit(f"the tests need some packages; run: sudo {' '.join(command)}")
    _say("installing " + ", ".join(packages))
    when_free(["apt-get", "update", "-qq"])
    when_free(command)


def when_free(
    command: list[str],
    *,
    patience_s: float = BUSY_S,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Run an apt-get as soon as no other program holds one of its locks.

    A new machine may update itself when it starts. apt-get itself waits for dpkg's lock alone, and
    only if it is new. If the locks are held for `patience_s`, or if it fails otherwise, end the
    program.
    """
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    waited_s = 0.0
    while True:
        done = subprocess.run(
            command, check=False, env=environment, stderr=subprocess.PIPE, text=True
        )
        lock = _LOCKED.search(done.stderr) if done.returncode else None
        if lock is None or waited_s >= patience_s:
            break
        if not waited_s:
            _say(f"another program installs packages; waiting up to {patience_s:.0f} s: {lock[0]}")
        pause(RETRY_S)
        waited_s += RETRY_S
    sys.stderr.write(done.stderr)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} ended with {done.returncode}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()  # before what the programs print

"""Installs what the servers need.

Debian packages come by apt-get, Kafka's jars by Maven, MySQL is unpacked into a folder of its own,
and kustomize is built by Go.
"""

import os
import shutil
import subprocess
import sys

from tests.servers import kafka, kustomize, mysql
from tests.servers.process import ServerMissingError, program

# Each program and its Debian package.
PROGRAMS = {
    "mariadbd": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",
    "mariadb-dump": "mariadb-client",  # backs a ledger up, as a person would
    "redis-server": "redis-server",
    "java": "default-jre-headless",
    "mvn": "maven",
    "docker-compose": "docker-compose",  # reads the compose file; starts nothing
    "prometheus": "prometheus",  # evaluates the alert rules; its promtool tests them
    "amtool": "prometheus-alertmanager",  # groups and routes them
    "faketime": "faketime",  # fault runs give an agent a clock that jumps
    "cc": "build-essential",  # builds the waits that faketime's clock lacks
}


def install() -> None:
    """Install what is missing and report it.

    If that needs another user or system, end the program with a command to type.
    """
    packages = missing()
    if packages:
        _apt(packages)
    try:
        kafka.fetch()
    except ServerMissingError as error:
        sys.exit(str(error))
    _say(f"ready: Apache Kafka {kafka.VERSION}, MariaDB, Redis")
    try:
        mysql.fetch()
    except ServerMissingError as error:
        _say(f"without MySQL, whose tests will be skipped, or fail in CI: {error}")
    else:
        _say("ready: MySQL")
    try:
        kustomize.fetch()
    except ServerMissingError as error:
        _say(f"without kustomize, whose tests will be skipped, or fail in CI: {error}")
    else:
        _say("ready: kustomize")


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
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    _say("installing " + ", ".join(packages))
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    subprocess.run(command, check=True, env=environment)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")

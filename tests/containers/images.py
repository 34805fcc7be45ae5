"""The stand-ins for the images that the Dockerfile and the Compose file name.

Two root folders are made from Debian's packages and kept between runs, beside the other downloads.
"""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from tests.containers.docker import Docker
from tests.servers import kafka, unstable
from tests.servers.cache import appears, cache
from tests.servers.process import program

PYTHON = "python:3.13-slim"
STANDINS = Path(__file__).parent / "standins"
SERVERS = {
    "kafka": f"apache/kafka:{kafka.VERSION}",
    "mysql": "mysql:8.4",
    "redis": "redis:7",
    "prometheus": "prom/prometheus:v3.5.0",
}
PIP = Path("/etc/pip.conf")
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
OPTIONS = (
    "--variant=minbase",
    "--mode=root",
    "--quiet",
    "--format=tar",
    '--aptopt=Acquire::Check-Valid-Until "false"',
    '--aptopt=Acquire::Languages "none"',
    '--aptopt=APT::Install-Recommends "false"',
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=force-unsafe-io",
)


def add_python(docker: Docker) -> None:
    """Make the image of Python 3.13, which reaches the machine's own index of packages."""
    machines_own = [f"copy-in {file} {file.parent}" for file in (PIP, AUTHORITIES) if file.exists()]
    packages = ["python3", "python3-venv", "python-is-python3", "ca-certificates"]
    docker.do("import", _root(docker, "python", "trixie", packages, machines_own), PYTHON)


def add_servers(docker: Docker) -> None:
    """Make the images of the servers."""
    packages = [
        "openjdk-21-jre-headless",
        "redis-server",
        "mysql-server-core",
        "mysql-client-core",
        "prometheus",
    ]
    jars = [
        'mkdir -p "$1/opt/kafka/libs"',
        f'cp -r "{kafka.libraries()}/." "$1/opt/kafka/libs"',
    ]
    docker.do("import", _root(docker, "servers", "unstable", packages, jars), "servers")
    for name, image in SERVERS.items():
        docker.do("build", "--quiet", "--network=none", "--tag", image, STANDINS / name)


def _root(
    docker: Docker, name: str, suite: str, packages: Sequence[str], hooks: Sequence[str]
) -> Path:
    command = [
        *("setpriv", "--pdeathsig", "TERM"),
        program("mmdebstrap", package="mmdebstrap"),
        *OPTIONS,
        f"--include={','.join(packages)}",
        *(f"--customize-hook={hook}" for hook in hooks),
        suite,
    ]
    made = cache() / "containers" / f"{name}-{sha256(' '.join(command).encode()).hexdigest()[:12]}"
    if not made.exists():
        with appears(made) as folder:
            docker.run([*command, str(folder / "root.tar"), unstable.mirror()], timeout_s=1200)
    return made / "root.tar"

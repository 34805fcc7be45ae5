"""Docker Compose 2 and BuildKit's client, which Debian stable does not have."""

from pathlib import Path

from tests.servers import unstable
from tests.servers.cache import cache
from tests.servers.process import ServerMissingError

PLUGINS = "usr/libexec/docker/cli-plugins"


def fetch() -> None:
    """Download and unpack both.

    Raises ServerMissingError if this is not Debian or apt-get fails.
    """
    unstable.unpack(_folder(), unstable.ALONE, "docker-compose", "docker-buildx")


def plugins() -> Path:
    """Return the folder of the plugins of `docker`.

    Raises ServerMissingError if they are not there.
    """
    folder = _folder() / PLUGINS
    if not folder.exists():
        raise ServerMissingError(
            "Docker Compose is not there; run: python -m tests.servers install"
        )
    return folder


def command() -> list[str]:
    """Return the command of Docker Compose 2; `config` needs no Docker.

    Raises ServerMissingError if it is not there.
    """
    return [str(plugins() / "docker-compose")]


def _folder() -> Path:
    return cache() / "docker-compose"

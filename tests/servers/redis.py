"""Redis as one process.

Its append-only file is on, so that a restart keeps the written data.
"""

from collections.abc import Sequence

import redis

from tests.servers.process import Server, program


class Redis(Server):
    """A single Redis without password."""

    name = "redis"

    @property
    def url(self) -> str:
        """Return the address for clients."""
        return f"redis://127.0.0.1:{self.port}/0"

    def prepare(self) -> None:
        """Check that the program is installed; Redis makes its own files."""
        program("redis-server", package="redis-server")

    def command(self) -> Sequence[str]:
        """Return the server's command line."""
        server = program("redis-server", package="redis-server")
        return [
            server,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self.folder),
            "--save",
            "",
            "--appendonly",
            "yes",
        ]

    def ready(self) -> bool:
        """Return whether the server answers a ping; it does not while it loads its file."""
        client = redis.Redis.from_url(self.url, socket_timeout=2, socket_connect_timeout=2)
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()

"""Install the servers, or run them until told to stop.

python -m tests.servers install
    installs what is missing: Debian packages (as root), Kafka's jars (Maven), MySQL (Debian)
python -m tests.servers up [--env-file FILE]
    starts all, prints `export NAME=value` lines, stops on SIGTERM or Ctrl-C
"""

import argparse
import signal
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.servers import Kafka, MariaDB, Redis, Server
from tests.servers.install import install


def main() -> None:
    """Read the command line and run its command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.servers",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install")
    commands.add_parser("up").add_argument("--env-file", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "install":
        install()
    else:
        up(arguments.env_file)


def up(env_file: Path | None) -> None:
    """Run all servers with data in a temporary folder until a signal comes."""
    stop_requested = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # A handler is used and not blocked signals: the servers would inherit the mask and could
        # then not be stopped.
        signal.signal(number, lambda *_: stop_requested.set())
    with tempfile.TemporaryDirectory(prefix="docllm-servers-") as folder, ExitStack() as stack:
        kafka, mariadb, redis = (
            Kafka(folder=Path(folder, "kafka")),
            MariaDB(folder=Path(folder, "mariadb")),
            Redis(folder=Path(folder, "redis")),
        )
        _start([kafka, mariadb, redis], stack)
        announce(kafka, mariadb, redis, env_file)
        stop_requested.wait()


def announce(kafka: Kafka, mariadb: MariaDB, redis: Redis, env_file: Path | None) -> None:
    """Print how to reach the servers; the file appears whole, so that a script can wait for it."""
    values = {
        "DOCLLM_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "DOCLLM_DATABASE_URL": mariadb.url,
        "DOCLLM_REDIS_URL": redis.url,
    }
    text = "".join(f"export {name}={value}\n" for name, value in values.items())
    print(text, end="", flush=True)  # noqa: T201 - this is the program's output
    if env_file is not None:
        half = env_file.with_name(env_file.name + ".part")
        half.write_text(text)
        half.replace(env_file)


def _start(servers: list[Server], stack: ExitStack) -> None:
    for server in servers:
        stack.callback(server.close)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda server: server.start(), servers))


if __name__ == "__main__":
    main()

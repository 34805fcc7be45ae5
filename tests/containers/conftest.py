"""One Docker for the whole run, with the images of base, servers and docllm."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.conftest import running
from tests.containers import images
from tests.containers.docker import PERSON, Docker, Uplink
from tests.servers.cache import CHECKOUT

LOCK = "requirements.lock"

Checkout = Callable[..., Path]


@pytest.fixture(scope="session")
def docker() -> Iterator[Docker]:
    """Return a Docker that reaches the index of Python's packages."""
    # pytest's own folders have long names, and nobody but root may enter them.
    with tempfile.TemporaryDirectory(prefix="docllm-") as name, ExitStack() as stack:
        folder = Path(name)
        # Who reaches the socket is root: nobody but the person may.
        os.chown(folder, 0, PERSON)
        folder.chmod(0o750)
        docker = stack.enter_context(contextmanager(running)(Docker(folder=folder)))
        stack.enter_context(contextmanager(running)(Uplink(folder=folder, docker=docker)))
        yield docker


@pytest.fixture(scope="session")
def servers(docker: Docker) -> Iterator["Future[None]"]:
    """Begin to make the images of the servers; the result is there when they are."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit(images.add_servers, docker)


@pytest.fixture(scope="session")
def checkout(docker: Docker) -> Checkout:
    """Return a function that lays out a checkout of this project as a person has it."""

    def lay_out(name: str, umask: int = 0o022) -> Path:
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, text=True, check=True)
        target = docker.folder / name
        for file in files.stdout.rstrip("\0").split("\0"):
            if not (CHECKOUT / file).is_file():
                continue  # removed, and not committed yet
            copy = target / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(CHECKOUT / file, copy)
        for path in (target, *target.rglob("*")):
            path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
            os.chown(path, PERSON, PERSON)
        # Its mode decides whether the packages are installed again, and root alone reads it.
        (target / LOCK).chmod(0o644)
        return target

    return lay_out


@pytest.fixture(scope="session")
def image(docker: Docker, servers: "Future[None]", checkout: Checkout) -> str:
    """Return the name of docllm's image, built from this checkout."""
    images.add_python(docker)
    docker.do("build", "--tag", "docllm", checkout("plain"), timeout_s=600)
    return "docllm"

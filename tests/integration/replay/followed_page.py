"""Follows a page of the documentation as a person would: it runs the commands of a section."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from sqlalchemy import make_url

from tests.integration.support.deployment import Deployment
from tests.servers.kafka import java

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
PATIENCE_S = 240.0
_FENCED = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def commands(page: str, heading: str) -> str:
    """Return the shell commands below a heading of a how-to page, up to the next heading."""
    _, found, rest = (HOW_TO / page).read_text().partition(f"\n## {heading}\n")
    blocks = _FENCED.findall(rest.partition("\n## ")[0])
    assert found, f"{page} has no section {heading!r}"
    assert blocks, f"section {heading!r} of {page} has no commands"
    return "".join(blocks)


def follow(deployment: Deployment, page: str, heading: str) -> str:
    """Run the commands of a section for an installation on servers; return their output.

    Database, group and broker of the installation stand where the page says `docllm` and
    `localhost:9092`. Any command that fails, fails the test.
    """
    _prepare(deployment)
    script = commands(page, heading).replace(
        "localhost:9092", deployment.environ["DOCLLM_KAFKA_BOOTSTRAP"]
    )
    lines = [_of_installation(line, deployment.group) for line in script.splitlines()]
    folder = deployment.folder
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder,
        env=deployment.environ
        | {"HOME": str(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.args[-1]}\n{done.stdout}"
    return done.stdout


def _of_installation(line: str, group: str) -> str:
    """Return a command with this group; the name of our own program stays."""
    program, space, rest = line.partition(" ")
    if program == "docllm":
        return line
    return program + space + rest.replace("docllm", group)


def _prepare(deployment: Deployment) -> None:
    """Make the programs that the page calls, and the file in which a person keeps the address."""
    url = make_url(deployment.environ["DOCLLM_DATABASE_URL"])
    (deployment.folder / ".my.cnf").write_text(
        f"[client]\nprotocol=tcp\nhost={url.host}\nport={url.port}\nuser={url.username}\n"
    )
    main = f'exec {sys.executable} -m docllm "$@" --group {deployment.group}'
    _program(deployment, "docllm", main)
    tool = shlex.join(java("org.apache.kafka.tools.TopicCommand", "96m"))
    _program(deployment, "kafka-topics.sh", f'exec {tool} "$@"')


def _program(deployment: Deployment, name: str, command: str) -> None:
    path = deployment.folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)

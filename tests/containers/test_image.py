"""The image: who can run it, how it ends, and what it does with embedded parts."""

import os
import re
import time
from pathlib import Path

import orjson
import pytest

from docllm.schemas.version import VERSION
from tests.containers.conftest import Checkout
from tests.containers.docker import PERSON, Docker
from tests.servers.cache import CHECKOUT

pytestmark = pytest.mark.proof
PAGE = CHECKOUT / "docs/how-to/install.md"
IDS = [f"t{number}" for number in range(30)]
TASKS = "".join(f'{{"id":"{each}","prompt":"question {each}"}}\n' for each in IDS)
READY = "no model is called"
PATIENCE_S = 120.0
# As the Compose file runs programs, without any server.
CONFINED = (
    "--network=none",
    f"--user={PERSON}:{PERSON}",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--read-only",
    "--tmpfs=/tmp",
)


@pytest.mark.parametrize("umask", [0o027, 0o077], ids=oct)  # `image` has the usual one
def test_any_umask_makes_an_image_that_every_user_can_run(
    docker: Docker, image: str, checkout: Checkout, umask: int
) -> None:
    """The modes of the checkout are not those of the image."""
    name = f"docllm:umask-{umask:03o}"
    docker.do("build", "--tag", name, checkout(f"umask-{umask:03o}", umask), timeout_s=600)

    for user in ("10001:10001", f"{PERSON}:{PERSON}"):
        shown = docker.ask("run", "--rm", "--network=none", f"--user={user}", name, "agent", "-h")
        assert (shown.returncode, shown.stderr) == (0, "")


def test_the_image_has_its_user_its_group_and_its_signal(docker: Docker, image: str) -> None:
    """Kubernetes and Compose name user and group by these numbers, and send this signal."""
    configuration = docker.facts(image)["Config"]
    shown = docker.do(
        "run",
        "--rm",
        "--network=none",
        "--entrypoint=sh",
        image,
        "-c",
        "id; pwd; ls -ld .; docllm --version",
    )

    assert configuration["User"] == "10001:10001"
    assert configuration["StopSignal"] == "SIGTERM"
    assert configuration["Entrypoint"] == ["python", "-m"]
    identity, folder, listed, version = shown.splitlines()
    assert identity.startswith("uid=10001(docllm) gid=10001(docllm)")
    assert (folder, listed.split()[2:4]) == ("/data", ["docllm", "docllm"])
    assert version == f"docllm {VERSION}"


def test_the_commands_of_the_page_run_a_batch(docker: Docker, image: str) -> None:
    """A person's folder, made under a umask that many systems have, gets the results."""
    home = person_s(docker.folder / "embedded")
    (home / "tasks.jsonl").write_text(TASKS)
    commands = re.search(r"## A container\n.*?```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert commands is not None
    export = "docker run --rm --user 1000:1000 --volume $PWD/work:/work --workdir /work docllm"

    done = docker.typed(commands[1], folder=home, umask=0o002)
    exported = docker.typed(f"{export} producer export --batch tasks out.jsonl", folder=home)

    assert (done.returncode, exported.returncode) == (0, 0), done.stderr + exported.stderr
    lines = [orjson.loads(line) for line in (home / "work/out.jsonl").read_text().splitlines()]
    assert [(line["id"], line["status"]) for line in lines] == [(id_, "succeeded") for id_ in IDS]


@pytest.mark.parametrize("init", [False, True])
def test_a_signal_ends_an_agent_in_order(docker: Docker, image: str, init: bool) -> None:  # noqa: FBT001 - a parameter
    """The agent gets the signal as the first process, and below an init."""
    work = person_s(docker.folder / f"signals-{init}")
    id_ = started(docker, work, *(["--init"] if init else []), image, "agent", "--rehearsal")

    docker.do("stop", "--time=60", id_)

    assert docker.facts(id_)["State"]["ExitCode"] == 0, docker.ask("logs", id_).stderr


def test_a_killed_agent_is_no_success(docker: Docker, image: str) -> None:
    """A restart policy sees that it did not end by itself."""
    id_ = started(docker, person_s(docker.folder / "killed"), image, "agent", "--rehearsal")

    docker.do("kill", "--signal=KILL", id_)

    assert docker.do("wait", id_) == "137"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["producer", "nonsense"], 2, "is not a command"),
        (["producer", "load", "bad.jsonl"], 1, "rejects"),
        (["producer", "load", "tasks.jsonl"], 0, "30 tasks loaded"),
        (["--servers", "producer", "status"], 3, "127.0.0.1"),
    ],
)
def test_a_program_ends_with_its_code(
    docker: Docker, image: str, words: list[str], code: int, text: str
) -> None:
    """Docker passes the exit codes on that the page of commands lists."""
    work = person_s(docker.folder / f"codes-{code}")
    (work / "tasks.jsonl").write_text(TASKS)
    (work / "bad.jsonl").write_text("no JSON\n" + TASKS)
    servers = [
        "DOCLLM_KAFKA_BOOTSTRAP=127.0.0.1:1",
        "DOCLLM_DATABASE_URL=mysql://a:b@127.0.0.1:1/x",
    ]
    variables = [f"--env={each}" for each in servers if words[0] == "--servers"]
    words = [word for word in words if word != "--servers"]

    done = docker.ask("run", "--rm", *CONFINED, *mounted(work), *variables, image, *words)

    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr


@pytest.mark.parametrize("named", [False, True])
def test_a_settings_file_that_others_may_write_to_must_be_named(
    docker: Docker,
    image: str,
    named: bool,  # noqa: FBT001 - a parameter
) -> None:
    """No container knows that a group has no other member, so it says how to name the file."""
    work = person_s(docker.folder / f"settings-{named}")
    (work / "docllm.toml").write_text("[agent]\nslots = 7\n")
    (work / "docllm.toml").chmod(0o664)
    variables = ["--env=DOCLLM_CONFIG=docllm.toml"] if named else []

    done = docker.ask(
        "run", "--rm", *CONFINED, *mounted(work), *variables, image, "producer", "status"
    )

    assert done.returncode == (0 if named else 2), done.stderr
    assert ("DOCLLM_CONFIG=docllm.toml" in done.stderr) is not named


def person_s(folder: Path) -> Path:
    """Make a folder of the person."""
    folder.mkdir(exist_ok=True)
    os.chown(folder, PERSON, PERSON)
    return folder


def mounted(work: Path) -> list[str]:
    """Return the options with which a program works in a folder."""
    return [f"--volume={work}:/work", "--workdir=/work"]


def started(docker: Docker, work: Path, *words: str) -> str:
    """Start a container, and return its id once its agent works."""
    id_ = docker.do("run", "--detach", *CONFINED, *mounted(work), *words)
    end = time.monotonic() + PATIENCE_S
    while READY not in docker.ask("logs", id_).stderr:
        assert time.monotonic() < end, docker.ask("logs", id_).stderr
        time.sleep(0.2)
    return id_

"""The Compose file, by the commands of its page, typed by a person who is not root."""

import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.containers.conftest import Checkout
from tests.containers.docker import Docker
from tests.servers.cache import CHECKOUT

pytestmark = pytest.mark.proof
PAGE = CHECKOUT / "docs/how-to/kafka.md"
PATIENCE_S = 240.0
TASKS = 1500
AGENTS = 4  # what the page says
LLM = "llm"
LATENCY_S = "0.5"
BEGUN = 100  # calls after which the agents are killed, in mid-work
FINAL = {"total": TASKS, "succeeded": TASKS}


class Person:
    """A person in a checkout, with a umask that many systems have, who types commands."""

    def __init__(self, *, docker: Docker, folder: Path) -> None:
        self.docker = docker
        self.folder = folder
        text = re.search(r"## On one machine.*?```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
        assert text is not None
        self._lines = [line for line in text[1].splitlines() if not line.startswith("export")]

    def line(self, word: str) -> str:
        """Return the one command of the page that has the word."""
        (line,) = [line for line in self._lines if word in line]
        return line

    def types(self, text: str, *, code: int = 0) -> str:
        """Type a command, which ends with `code`; return all that it printed."""
        variables = {"DOCLLM_LLM_BASE_URL": f"http://{LLM}:8000/v1", "DOCLLM_LLM_MODEL": "m"}
        done = self.docker.typed(text, folder=self.folder, umask=0o002, **variables)
        assert done.returncode == code, f"{text}: {done.stdout[-3000:]}{done.stderr[-5000:]}"
        return done.stdout + done.stderr

    def compose(self, words: str, *, code: int = 0) -> str:
        """Type a command of Compose."""
        return self.types(f"docker compose -f docker-compose.kafka.yml {words}", code=code)

    def producer(self, words: str, *, code: int = 0) -> str:
        """Type a command of `producer`, as the page does."""
        return self.compose(f"run --rm --no-deps agents producer {words}", code=code)

    def ids(self, service: str) -> list[str]:
        """Return the containers of a service, whether they run or not."""
        labels = [f"service={service}", "oneoff=False"]
        filters = [f"--filter=label=com.docker.compose.{label}" for label in labels]
        return sorted(self.docker.words("ps", "-aq", "--no-trunc", *filters))

    def counts(self) -> dict[str, int]:
        """Return how many tasks are in each state, as an agent's container sees them."""
        (agent, *_) = self.docker.words(
            "ps", "-q", "--filter", "label=com.docker.compose.service=agents"
        )
        printed = self.docker.do("exec", agent, "python", "-m", "producer", "status", "--json")
        (batch,) = orjson.loads(printed)["batches"]
        return {state: count for state, count in batch["counts"].items() if count}


@pytest.fixture(scope="module")
def person(
    docker: Docker, image: str, servers: "Future[None]", checkout: Checkout
) -> Iterator[Person]:
    """Return a person whose servers and agents run, after the first commands of the page."""
    person = Person(docker=docker, folder=checkout("docllm"))
    (person.folder / "tasks.jsonl").write_text(
        "".join(f'{{"id":"t{each}","prompt":"question {each}"}}\n' for each in range(TASKS))
    )
    servers.result()
    for word in ("mkdir", "UID=", "AGENTS=", "--build"):
        person.types(person.line(word))
    try:
        yield person
    finally:
        docker.ask("container", "rm", "--force", LLM)
        person.compose("--profile metrics down --volumes")


@pytest.fixture(scope="module")
def calls(docker: Docker, image: str, person: Person) -> Callable[[], int]:
    """Start an LLM beside the agents; return a function that counts the calls it got."""
    log = person.folder / "calls"
    log.mkdir()
    os.chown(log, 10001, 10001)
    words = ["--host", "0.0.0.0", "--port", "8000", "--latency", LATENCY_S, "--log", "/log/calls"]  # noqa: S104 - in a container
    mount = f"--volume={log}:/log"
    docker.do(
        "run", "--detach", "--name", LLM, "--network", "docllm_default", mount,
        image, "agent", "rehearsal-llm", *words,
    )  # fmt: skip

    def count() -> int:
        file = log / "calls"
        return file.read_text().count('"start"') if file.exists() else 0

    until(lambda: "/v1" in docker.do("logs", LLM), "the LLM to listen")
    return count


def test_the_check_finds_nothing_wrong_with_a_server(
    person: Person, calls: Callable[[], int]
) -> None:
    """Redis answers the agents, too: they would run without it, and say so only in their logs."""
    printed = person.producer("check")

    assert not re.search("WARNING|FAILED", printed), printed
    assert len(re.findall(r"^ok ", printed, re.MULTILINE)) >= 4, printed


def test_one_image_runs_all_programs(docker: Docker, person: Person) -> None:
    """Each service has the image that the tag names, so no later start replaces a container."""
    tag = docker.facts("docllm:latest")["Id"]

    used = [
        docker.facts(id_)["Image"]
        for each in ("migrate", "topics", "agents")
        for id_ in person.ids(each)
    ]

    assert used == [tag] * (2 + AGENTS)


def test_published_ports_answer_on_the_address_of_the_page(docker: Docker, person: Person) -> None:
    """Kafka names 127.0.0.1 to programs outside the containers, where its port is published."""
    variables = {
        "DOCLLM_KAFKA_BOOTSTRAP": "127.0.0.1:29092",
        "DOCLLM_DATABASE_URL": "mysql://docllm:docllm@127.0.0.1:23306/docllm",
    }
    words = [f"--env={name}={value}" for name, value in variables.items()]

    printed = docker.do(
        "run", "--rm", "--network=host", *words, "docllm", "producer", "topics", "check"
    )

    assert "as they should be" in printed


def test_no_result_is_lost_when_both_agents_are_killed(
    docker: Docker, person: Person, calls: Callable[[], int]
) -> None:
    """The export is the input, after agents died in mid-work and others came."""
    person.types("sed -i s/AGENTS=4/AGENTS=2/ .env")
    person.compose("up --detach")
    first, second = person.ids("agents")
    person.types(person.line("load"))
    until(lambda: calls() >= BEGUN, "calls in mid-work")

    docker.do("exec", first, "sh", "-c", "kill -9 -1")  # the agent, not the init above it
    docker.do("kill", "--signal=KILL", second)
    until(lambda: docker.facts(first)["RestartCount"] == 1, "the restart of an agent")
    person.types("sed -i s/AGENTS=2/AGENTS=3/ .env")
    person.compose("up --detach")

    until(lambda: person.counts() == FINAL, "the end of all tasks")
    assert len(person.ids("agents")) == 3
    person.types(person.line("producer export"))
    exported = (person.folder / "work/results.jsonl").read_text().splitlines()
    results = [orjson.loads(line) for line in exported]
    assert [line["id"] for line in results] == [f"t{each}" for each in range(TASKS)]
    assert {line["status"] for line in results} == {"succeeded"}
    assert TASKS < calls() < 2 * TASKS


def test_a_later_start_keeps_the_agents(docker: Docker, person: Person) -> None:
    """The command of the page that adds the metrics adds them, and changes nothing else."""
    before = {each: person.ids(each) for each in ("kafka", "mysql", "redis", "agents")}

    person.types(person.line("metrics"))

    assert {each: person.ids(each) for each in before} == before
    until(lambda: health(docker, person) == {"up": len(before["agents"]) + 1}, "all targets")


def health(docker: Docker, person: Person) -> dict[str, int]:
    """Return how many targets of Prometheus have which health."""
    (id_,) = person.ids("prometheus")
    asked = "from urllib.request import urlopen; print(urlopen('{}').read().decode())".format(
        "http://127.0.0.1:9090/api/v1/targets"
    )
    near = f"--network=container:{id_}"
    done = docker.ask("run", "--rm", near, "--entrypoint=python", "docllm", "-c", asked)
    counts: dict[str, int] = {}
    for target in orjson.loads(done.stdout)["data"]["activeTargets"] if not done.returncode else ():
        counts[target["health"]] = counts.get(target["health"], 0) + 1
    return counts


def test_a_settings_file_reaches_the_programs_when_it_is_named(person: Person) -> None:
    """Under this umask the group may write to the file, and no container knows the group."""
    person.types("printf '[llm]\\nmodel = \"of-the-file\"\\nunknown = 1\\n' > work/docllm.toml")
    assert "DOCLLM_CONFIG=docllm.toml" in person.producer("status", code=2)

    person.types("echo DOCLLM_CONFIG=docllm.toml >> .env")

    assert "docllm.toml line 3" in person.producer("status", code=2)
    person.types("sed -i /unknown/d work/docllm.toml")
    assert "tasks" in person.producer("status")


def test_a_missing_folder_is_not_made_by_root(person: Person) -> None:
    """Docker says which folder is missing, and makes none that the person cannot use."""
    person.types("mv work elsewhere")
    try:
        assert f"{person.folder}/work" in person.producer("status", code=1)
        assert not (person.folder / "work").exists()
    finally:
        person.types("mv elsewhere work")


def test_a_stop_ends_each_agent_in_order(docker: Docker, person: Person) -> None:
    """Compose's own signal and patience let an agent leave."""
    person.compose("stop agents")

    ends = [docker.facts(id_)["State"] for id_ in person.ids("agents")]
    assert [(end["ExitCode"], end["OOMKilled"]) for end in ends] == [(0, False)] * len(ends)


def until(true: Callable[[], Any], what: str) -> None:
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.5)

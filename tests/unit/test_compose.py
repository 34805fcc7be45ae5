"""The container files say the same as the code: broker settings, limits, time limits, names of variables."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.config import AgentConfig
from schemas.envelope import MAX_TASK_BYTES
from schemas.settings import load_config
from tests.servers import kafka

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.kafka.yml"


@pytest.fixture
def services() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text())["services"]


@pytest.fixture
def compose() -> list[str]:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0:
            return command
    if os.environ.get("CI"):
        pytest.fail("docker compose is not installed; run: python -m tests.servers install")
    return pytest.skip("docker compose is not installed; run: python -m tests.servers install")


def test_broker_has_the_settings_that_the_tests_run_with(services: dict[str, Any]) -> None:
    """What the suites prove on the test broker holds on the broker of the compose file."""
    environment = services["kafka"]["environment"]

    told = {name: str(environment[f"KAFKA_{name.upper().replace('.', '_')}"]) for name in kafka.SETTINGS}

    assert told == kafka.SETTINGS


def test_broker_is_the_version_that_the_tests_run_with(services: dict[str, Any]) -> None:
    """One version of Kafka is tested and shipped."""
    assert services["kafka"]["image"] == f"apache/kafka:{kafka.VERSION}"


def test_broker_takes_the_largest_task(services: dict[str, Any]) -> None:
    """A task of the greatest size fits into a message together with a megabyte of headers."""
    assert int(services["kafka"]["environment"]["KAFKA_MESSAGE_MAX_BYTES"]) >= MAX_TASK_BYTES + (1 << 20)


def test_database_keeps_the_largest_reply(services: dict[str, Any]) -> None:
    """A quarter of a packet holds the 16 MiB that a reply may have, and a commit is on disk before it is answered."""
    packet = next(re.fullmatch(r"--max-allowed-packet=(\d+)M", option) for option in services["mysql"]["command"] if "packet" in option)

    assert packet is not None
    assert int(packet[1]) // 4 >= 16
    assert "--innodb-flush-log-at-trx-commit=1" in services["mysql"]["command"]


def test_agents_have_time_to_drain(services: dict[str, Any]) -> None:
    """Docker kills an agent only after its drain and ten seconds more."""
    grace_s = float(services["agents"]["stop_grace_period"].removesuffix("s"))

    assert grace_s >= AgentConfig().drain_timeout_s + 10


def test_agents_wait_for_schema_and_topics(services: dict[str, Any]) -> None:
    """No agent starts before the schema and the topics are there."""
    assert services["topics"]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    assert services["agents"]["depends_on"]["topics"] == {"condition": "service_completed_successfully"}


def test_container_runs_the_agent_itself_and_not_as_root() -> None:
    """The agent is the container's process, so that signals reach it, and it is nobody in particular."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    said = dict(line.split(" ", 1) for line in lines if line.startswith(("USER", "ENTRYPOINT", "CMD")))

    assert [*json.loads(said["ENTRYPOINT"]), *json.loads(said["CMD"])] == ["python", "-m", "agent", "--group", "docllm"]
    assert said["USER"] not in ("root", "0")


def test_programs_understand_their_environment(services: dict[str, Any], tmp_path: Path) -> None:
    """Every variable of the agents is one that the configuration knows, and together they name all three servers."""
    examples = {"DOCLLM_LLM_BASE_URL": "http://llm/v1", "DOCLLM_SLOTS": "8", "DOCLLM_RETRY_TIERS": "30s,5m", "DOCLLM_MAX_ATTEMPTS": "3"}
    given = services["agents"]["environment"]
    environ = {name: re.sub(r"\$\{\w+:-(\w+)\}", r"\1", value or examples.get(name, "some")) for name, value in given.items()}

    config = load_config(flags={}, environ=environ, cwd=tmp_path)

    assert config.kafka.bootstrap == "kafka:9092"
    assert config.database_url is not None
    assert "docllm:docllm@mysql:3306/docllm" in config.database_url.reveal()
    assert config.redis_url is not None


@pytest.mark.parametrize(
    "given", [("OPENAI_API_KEY", "DOCLLM_LLM_MODEL"), ("DOCLLM_LLM_BASE_URL", "DOCLLM_LLM_API_KEY", "DOCLLM_LLM_MODEL")]
)
def test_what_names_a_provider_reaches_the_agents(services: dict[str, Any], given: tuple[str, ...]) -> None:
    """Whichever variables a page tells a person to export; without a value they come from the shell."""
    assert [services["agents"]["environment"].get(name, "missing") for name in given] == [None] * len(given)


@pytest.mark.parametrize("service", ["migrate", "topics", "agents"])
def test_what_programs_read_and_write_is_shared_with_the_person(services: dict[str, Any], service: str) -> None:
    """Rejects and results outlive a container that is removed, and agents may read the documents that are loaded from there."""
    one = services[service]

    assert one["volumes"] == ["./work:/work"]
    assert one["working_dir"] == "/work"
    assert one["environment"]["DOCLLM_DOCUMENT_ROOTS"] == "/work"


def test_docker_reads_the_file(compose: list[str]) -> None:
    """Docker itself finds nothing wrong with the compose file."""
    done = subprocess.run([*compose, "--file", FILE, "config", "--quiet"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")

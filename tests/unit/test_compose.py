"""The container files agree with the code: broker settings, limits, timeouts and variables."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from docllm.agent.cli.parser import run_parser
from docllm.producer.cli.parser import parser
from docllm.producer.metrics.http_server import HttpPage, HttpServer, health
from docllm.schemas.runtime.address import Address
from docllm.schemas.settings.config import AgentConfig
from docllm.schemas.settings.sources import load_config
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES
from tests.servers import docker_compose, kafka
from tests.servers.process import ServerMissingError
from tests.support.leaving import LEAVING_S

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.kafka.yml"
PROGRAMS = ["migrate", "topics", "agents", "exporter"]


@pytest.fixture
def services() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load(FILE.read_text())["services"]
    return services


@pytest.fixture
def compose() -> list[str]:
    try:
        return docker_compose.command()
    except ServerMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


def test_broker_has_the_settings_that_the_tests_run_with(services: dict[str, Any]) -> None:
    """The compose file's broker has the settings of the test broker, for which the suites hold."""
    environment = services["kafka"]["environment"]

    settings = {
        name: str(environment[f"KAFKA_{name.upper().replace('.', '_')}"]) for name in kafka.SETTINGS
    }

    assert settings == kafka.SETTINGS


def test_broker_is_the_version_that_the_tests_run_with(services: dict[str, Any]) -> None:
    """One version of Kafka is tested and shipped."""
    assert services["kafka"]["image"] == f"apache/kafka:{kafka.VERSION}"


def test_broker_takes_the_largest_task(services: dict[str, Any]) -> None:
    """A task of the greatest size fits into a message together with a megabyte of headers."""
    assert int(services["kafka"]["environment"]["KAFKA_MESSAGE_MAX_BYTES"]) >= MAX_TASK_BYTES + (
        1 << 20
    )


def test_database_keeps_the_largest_reply(services: dict[str, Any]) -> None:
    """A quarter of a packet holds a reply of 16 MiB; a commit is on disk once answered."""
    packet = next(
        re.fullmatch(r"--max-allowed-packet=(\d+)M", option)
        for option in services["mysql"]["command"]
        if "packet" in option
    )

    assert packet is not None
    assert int(packet[1]) // 4 >= 16
    assert "--innodb-flush-log-at-trx-commit=1" in services["mysql"]["command"]


def test_agents_see_what_a_health_check_of_a_server_sees(services: dict[str, Any]) -> None:
    """The check takes the agents' way, by name: a server may answer its own host alone."""
    urls = services["agents"]["environment"]
    for name, variable in (
        ("kafka", "DOCLLM_KAFKA_BOOTSTRAP"),
        ("mysql", "DOCLLM_DATABASE_URL"),
        ("redis", "DOCLLM_REDIS_URL"),
    ):
        check = " ".join(services[name]["healthcheck"]["test"])
        assert re.search(rf"/tcp/{name}/|--host={name}\b|-h {name}\b", check), check
        assert name in urls[variable]
        assert "localhost" not in check


def test_no_address_of_the_broker_may_mean_ipv6(services: dict[str, Any]) -> None:
    """The port is published on 127.0.0.1, and `localhost` may first mean ::1."""
    environment = services["kafka"]["environment"]
    assert not [name for name, value in environment.items() if "localhost" in str(value)]


def test_one_service_builds_the_image_that_all_programs_use(services: dict[str, Any]) -> None:
    """Each `build` makes an image of its own, and the name goes to the last of them."""
    assert {services[name]["image"] for name in PROGRAMS} == {"docllm"}
    assert [name for name, service in services.items() if "build" in service] == ["migrate"]


def test_a_command_of_a_page_starts_no_other_program_and_keeps_the_agents() -> None:
    """`run` alone migrates each time, and `--scale` holds until the next `up` without it."""
    pages = [FILE.read_text(), *(page.read_text() for page in ROOT.glob("docs/**/*.md"))]
    runs = [line for page in pages for line in page.splitlines() if "compose" in line]

    assert [line for line in runs if " run " in line and "--no-deps" not in line] == []
    assert [line for line in runs if "--scale" in line] == []


def test_agents_have_time_to_drain(services: dict[str, Any]) -> None:
    """Docker kills an agent only after its drain and all the steps of leaving."""
    grace_s = float(services["agents"]["stop_grace_period"].removesuffix("s"))

    assert grace_s >= AgentConfig().drain_timeout_s + LEAVING_S


def test_agents_wait_for_schema_and_topics(services: dict[str, Any]) -> None:
    """No agent starts before the schema and the topics are there."""
    assert services["topics"]["depends_on"]["migrate"] == {
        "condition": "service_completed_successfully"
    }
    assert services["agents"]["depends_on"]["topics"] == {
        "condition": "service_completed_successfully"
    }
    assert services["agents"]["depends_on"]["redis"] == {"condition": "service_healthy"}


def test_container_runs_the_agent_itself_and_not_as_root() -> None:
    """The agent is the container's process, so that signals reach it, and it is not root."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    settings = dict(
        line.split(" ", 1) for line in lines if line.startswith(("USER", "ENTRYPOINT", "CMD"))
    )

    assert [*json.loads(settings["ENTRYPOINT"]), *json.loads(settings["CMD"])] == [
        "python",
        "-m",
        "agent",
        "--group",
        "docllm",
    ]
    assert settings["USER"] == "10001:10001"


def test_programs_understand_their_environment(services: dict[str, Any], tmp_path: Path) -> None:
    """The agents' variables are all known to the configuration, and name all three servers."""
    examples = {
        "DOCLLM_LLM_BASE_URL": "http://llm/v1",
        "DOCLLM_SLOTS": "8",
        "DOCLLM_RETRY_TIERS": "30s,5m",
        "DOCLLM_MAX_ATTEMPTS": "3",
        "DOCLLM_CONFIG": "",
    }
    given = services["agents"]["environment"]
    environ = {
        name: re.sub(r"\$\{\w+:-(\w+)\}", r"\1", value or examples.get(name, "some"))
        for name, value in given.items()
    }

    config = load_config(flags={}, environ=environ, cwd=tmp_path)

    assert config.kafka.bootstrap == "kafka:9092"
    assert config.database_url is not None
    assert "docllm:docllm@mysql:3306/docllm" in config.database_url.reveal()
    assert config.redis_url is not None


@pytest.mark.parametrize(
    "given",
    [
        ("OPENAI_API_KEY", "DOCLLM_LLM_MODEL"),
        ("DOCLLM_LLM_BASE_URL", "DOCLLM_LLM_API_KEY", "DOCLLM_LLM_MODEL"),
    ],
)
def test_variables_that_name_a_provider_reach_the_agents(
    services: dict[str, Any], given: tuple[str, ...]
) -> None:
    """Variables that a page tells a person to export reach the agents from the shell."""
    assert [services["agents"]["environment"].get(name, "missing") for name in given] == [
        None
    ] * len(given)


@pytest.mark.parametrize("service", PROGRAMS)
def test_files_of_programs_are_shared_with_the_person(
    services: dict[str, Any], service: str
) -> None:
    """Rejects and results outlive a removed container, and agents can read the documents."""
    definition = services[service]
    (volume,) = definition["volumes"]

    assert (volume["source"], volume["target"]) == ("./work", "/work")
    assert volume["bind"] == {"create_host_path": False}  # Docker would make it as root
    assert definition["working_dir"] == "/work"
    assert definition["environment"]["DOCLLM_DOCUMENT_ROOTS"] == "/work"
    assert definition["environment"].get("DOCLLM_CONFIG", "missing") is None


@pytest.mark.parametrize("service", PROGRAMS)
def test_programs_understand_their_arguments(services: dict[str, Any], service: str) -> None:
    """Every command and option exists."""
    program, *arguments = services[service]["command"]
    (run_parser() if program == "agent" else parser()).parse_args(arguments)


@pytest.mark.parametrize(("service", "page"), [("agents", "/livez"), ("exporter", "/readyz")])
def test_health_checks_ask_the_port_of_the_program(
    services: dict[str, Any], service: str, page: str
) -> None:
    """The check is run here as it stands, on another port: it fails when the page answers 503."""
    definition, wrong = services[service], ["still starting"]
    listens = (
        definition["environment"].get("DOCLLM_AGENT_HTTP")
        or definition["command"][definition["command"].index("--listen") + 1]
    )
    pages = {page: HttpPage(lambda: health(wrong[0]), is_public=True)}
    server = HttpServer(address=Address("127.0.0.1", 0), pages=pages, token=None)
    try:
        _, python, option, code = definition["healthcheck"]["test"]
        assert (python, code.count(listens.replace("0.0.0.0", "127.0.0.1"))) == ("python", 1)  # noqa: S104 - what it says
        code = code.replace(listens.rpartition(":")[2], str(server.port))

        def check() -> int:
            command = [sys.executable, option, code]
            return subprocess.run(command, capture_output=True, check=False).returncode

        assert check() != 0
        wrong[0] = ""
        assert check() == 0
    finally:
        server.close()


def test_prometheus_reads_agents_and_exporter(services: dict[str, Any]) -> None:
    """Targets, token and files are those of the other services; rules go along."""
    prometheus = services["prometheus"]
    folder, inside, _ = prometheus["volumes"][0].split(":")
    name = prometheus["command"][0].removeprefix("--config.file=")
    assert Path(name).parent == Path(inside)
    file = ROOT / folder / Path(name).name
    configuration = yaml.safe_load(file.read_text())
    by_job = {job["job_name"]: job for job in configuration["scrape_configs"]}
    (exporter,) = by_job["docllm-exporter"]["static_configs"][0]["targets"]
    (agents,) = by_job["docllm-agents"]["dns_sd_configs"]
    assert exporter == "exporter:9465"
    assert f":{agents['port']}" in services["agents"]["environment"]["DOCLLM_AGENT_HTTP"]
    assert set(agents["names"]) <= services.keys()
    for job in by_job.values():
        assert job["authorization"]["credentials_file"] in prometheus["entrypoint"][2]
    for rules in configuration["rule_files"]:
        assert (file.parent / rules).exists()
    tokens = {
        services[each]["environment"]["DOCLLM_HTTP_TOKEN"]
        for each in ("agents", "exporter", "prometheus")
    }
    assert len(tokens) == 1


def test_every_container_has_a_limit_of_memory(services: dict[str, Any]) -> None:
    """No container takes what the others need."""
    for name, service in services.items():
        assert service["deploy"]["resources"]["limits"]["memory"], name


KEYS = {"DOCLLM_LLM_API_KEY", "OPENAI_API_KEY"}


def test_keys_go_to_the_agents_alone(services: dict[str, Any]) -> None:
    """Programs that only prepare servers get no key, because they call no LLM."""
    have = {
        name for name, service in services.items() if KEYS & set(service.get("environment", {}))
    }

    assert have == {"agents"}


@pytest.mark.parametrize("service", [*PROGRAMS, "redis", "prometheus"])
def test_programs_have_no_more_rights_than_they_need(
    services: dict[str, Any], service: str
) -> None:
    """The programs have no capability, no way to gain one, and write only to mounted folders."""
    definition = services[service]

    assert definition["cap_drop"] == ["ALL"]
    assert definition["security_opt"] == ["no-new-privileges:true"]
    assert definition["read_only"] is True


@pytest.mark.parametrize("service", ["kafka", "mysql"])
def test_no_server_gains_privileges(services: dict[str, Any], service: str) -> None:
    """No server gains privileges; MySQL's image starts as root and needs some capabilities.

    It needs them to give up root.
    """
    assert services[service]["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("service", PROGRAMS)
def test_programs_run_as_the_person_whose_folder_they_share(
    services: dict[str, Any], service: str
) -> None:
    """Programs run as the person whose folder they share.

    In a folder that everybody may write to, any local user could choose the configuration and get
    the key.
    """
    assert services[service]["user"] == "${UID:-10001}:${GID:-10001}"
    assert services[service]["environment"]["TMPDIR"] == "/work"
    for text in (FILE.read_text(), (ROOT / "docs/how-to/kafka.md").read_text()):
        assert "777" not in text
        assert """printf 'UID=%s\\nGID=%s\\n' "$(id -u)" "$(id -g)" >> .env""" in text


def test_image_takes_no_module_from_its_working_folder() -> None:
    """The image imports no module from its working folder.

    A file `orjson.py` in a shared folder used to run in every program, with the key in its
    environment.
    """
    assert re.search(
        r"^ENV (.*\\\n)* +PYTHONSAFEPATH=1( |$)", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )


def test_a_program_on_a_safe_path_takes_no_module_of_the_current_folder(tmp_path: Path) -> None:
    """With the image's safe-path variable, Python imports no module of the current folder.

    Without the variable, Python looks there first.
    """
    (tmp_path / "argparse.py").write_text("raise SystemExit('taken from the current folder')")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "producer", "topics", "check"]
        return subprocess.run(
            command, cwd=tmp_path, env=environ | more, capture_output=True, text=True, check=False
        )

    assert "taken from the current folder" in run().stderr
    assert (run(PYTHONSAFEPATH="1").returncode, run(PYTHONSAFEPATH="1").stderr) == (0, "")


def test_base_image_can_be_pinned_by_digest() -> None:
    """One argument names the base image for both stages, so it can be pinned by digest.

    Its default is a tag, which may mean another image tomorrow.
    """
    text = (ROOT / "Dockerfile").read_text()

    assert re.findall(r"^ARG (\w+)=", text, re.MULTILINE) == ["PYTHON"]
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${PYTHON}"] * 2


def test_docker_reads_the_file(compose: list[str]) -> None:
    """Docker itself finds nothing wrong with the compose file."""
    done = subprocess.run(
        [*compose, "--file", FILE, "config", "--quiet"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")

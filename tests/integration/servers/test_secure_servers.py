"""TLS and SASL: docllm on servers that accept nothing else, and its errors when refused."""

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from docllm.schemas.clients.kafka import (
    EXECUTING,
    SET_BY_DOCLLM,
    admin_settings,
    consumer_settings,
    producer_settings,
)
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import KafkaConfig
from docllm.schemas.settings.kinds import FIXED_CLIENT_SETTINGS
from docllm.schemas.settings.sources import load_config
from tests.integration.support import checker
from tests.integration.support.buses import KafkaBus
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import Program
from tests.servers import MariaDB, ServerMissingError
from tests.servers.secure import (
    HOST,
    WRONG_HOST,
    Authority,
    SecureKafka,
    SecureMariaDB,
    SecureRedis,
)

SOON_S = 180.0  # 10 s are the client's; the rest is for six program starts on a busy machine
# The same in every process: tests that run side by side must have the same names.
CANARY = "canary0f1e2d3c4b5a6978"
WRONG = f"{CANARY}wrong"
SERVERS = {"DOCLLM_KAFKA_BOOTSTRAP": "k:9092", "DOCLLM_DATABASE_URL": "mysql://u@h/d"}


@dataclass(frozen=True, slots=True)
class Site:
    """Servers that share an authority and a password, and an authority that signed none."""

    kafka: SecureKafka
    mariadb: SecureMariaDB
    redis: SecureRedis
    stranger: Authority


@dataclass(frozen=True, slots=True)
class Refused:
    """One wrong setup: the differences in [kafka.client] and the environment.

    The exit code and the words of the error follow.
    """

    code: int
    words: str
    client: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ("producer", "topics", "apply")


class SecureBus(KafkaBus):
    """Kafka, through a client with only the server's security settings."""

    def __init__(self, server: SecureKafka) -> None:
        self._settings = {**server.client, "bootstrap.servers": server.bootstrap}
        self.admin = AdminClient(self._settings)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Kafka with SASL_SSL, MariaDB and Redis with TLS, for all tests of this file."""
    folder = tmp_path_factory.mktemp("secure")
    ours, stranger = Authority(folder / "ours"), Authority(folder / "stranger")
    kafka = SecureKafka(folder=folder / "kafka", authority=ours, password=CANARY)
    mariadb = SecureMariaDB(folder=folder / "mariadb", authority=ours, password=CANARY)
    redis = SecureRedis(folder=folder / "redis", authority=ours, password=CANARY)
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        for server in (kafka, mariadb, redis):
            stack.callback(server.close)
        try:
            list(pool.map(lambda server: server.start(), (kafka, mariadb, redis)))
        except ServerMissingError as error:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
        yield Site(kafka, mariadb, redis, stranger)


@pytest.fixture(scope="module")
def secured(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """An installation on those servers, migrated and with topics."""
    name = f"g{secrets.token_hex(4)}"
    url = site.mariadb.create_database(name)
    settings = {
        "DOCLLM_KAFKA_BOOTSTRAP": site.kafka.bootstrap,
        "DOCLLM_DATABASE_URL": url,
        "DOCLLM_REDIS_URL": site.redis.url,
        "DOCLLM_LLM_API_KEY": CANARY,
    }
    deployment = Deployment(
        folder=tmp_path_factory.mktemp("secured"),
        group=name,
        bus=SecureBus(site.kafka),
        ledger_url=url,
        settings=settings,
        kafka=True,
    )
    write_client(deployment.folder / "docllm.toml", site.kafka.client)
    deployment.producer("migrate")
    deployment.producer("topics", "apply", "--partitions", "2", "--replication-factor", "1")
    yield deployment
    deployment.close()


def test_whole_job_over_tls_and_sasl(secured: Deployment) -> None:
    """Tasks are loaded, run and checked over SASL_SSL and TLS; each ends once.

    No secret is shown.
    """
    secured.llm("--latency", "0")

    secured.load(50)
    secured.until_done("--log-level", "DEBUG")
    evidence = secured.evidence()
    checked = secured.producer("check")

    assert secured.ledger.counts()["succeeded"] == 50
    assert checker.violations(evidence) == []
    assert [line.split()[0] for line in checked.splitlines()] == ["ok"] * 7
    assert CANARY not in secured.said()


def test_a_refusal_by_kafka_is_reported_soon_and_without_a_secret(
    secured: Deployment, site: Site
) -> None:
    """A wrong password, authority, host name or protocol is 3, a missing file 2, with advice."""
    refused = [
        Refused(3, "SASL authentication error", {"sasl.password": WRONG}),
        Refused(
            3,
            "SASL authentication error",
            {"sasl.password": WRONG},
            command=("agent", "--rehearsal", "--wait", "1d"),
        ),
        Refused(3, "certificate verify failed", {"ssl.ca.location": str(site.stranger.ca)}),
        Refused(
            3,
            "certificate verify failed",
            environ={"DOCLLM_KAFKA_BOOTSTRAP": f"{WRONG_HOST}:{site.kafka.port}"},
        ),
        Refused(3, "security.protocol, TLS and SASL", {"security.protocol": "PLAINTEXT"}),
        Refused(2, "ssl.ca.location", {"ssl.ca.location": "/nowhere/ca.pem"}),
    ]

    programs = [
        start(secured, number, refusal, site.kafka.client) for number, refusal in enumerate(refused)
    ]
    codes = [program.wait(SOON_S) for program in programs]

    assert codes == [refusal.code for refusal in refused], secured.said()
    assert [
        refusal
        for refusal, program in zip(refused, programs, strict=True)
        if refusal.words not in last_line(program)
    ] == []
    assert CANARY not in secured.said()


def test_a_refusal_by_the_database_is_reported_without_a_secret(
    embedded: Deployment, site: Site, mariadb_server: MariaDB
) -> None:
    """A wrong password, authority or host name, or a missing file, is 3.

    A server without TLS is 3 before the password is sent.
    """
    url = site.mariadb.create_database(f"d{secrets.token_hex(4)}")
    authority = url.partition("ssl_ca=")[2]
    refused = {
        url.replace(CANARY, WRONG): "Access denied",
        url.replace(
            authority, str(site.stranger.ca)
        ): "certificate verify failed: unable to get local issuer",
        url.replace(str(HOST), WRONG_HOST): "Hostname mismatch",
        url.replace(authority, "/nowhere/ca.pem"): "check the files named by the ssl_ options",
        url.replace(
            str(site.mariadb.port), str(mariadb_server.port)
        ): "the server doesn't support it",
    }

    kafka = {"DOCLLM_KAFKA_BOOTSTRAP": site.kafka.bootstrap}
    programs = [
        embedded.start("producer", "migrate", "--wait", "9s", DOCLLM_DATABASE_URL=wrong, **kafka)
        for wrong in refused
    ]
    codes = [program.wait(SOON_S) for program in programs]

    assert codes == [3] * len(refused), embedded.said()
    assert [
        words
        for words, program in zip(refused.values(), programs, strict=True)
        if words not in last_line(program)
    ] == []
    assert CANARY not in embedded.said()


def test_a_refusal_by_redis_is_reported_without_a_secret(embedded: Deployment, site: Site) -> None:
    """`check` names the wrong part of Redis' address, even an unknown option."""
    authority = site.redis.url.partition("ssl_ca_certs=")[2]
    refused = {
        site.redis.url.replace(CANARY, WRONG): "does not accept the user and password",
        site.redis.url.replace(
            authority, str(site.stranger.ca)
        ): "certificate verify failed: unable to get local issuer",
        site.redis.url.replace(str(HOST), WRONG_HOST): "Hostname mismatch",
        f"{site.redis.url}&pasword={CANARY}": "check what follows '?'",
    }

    programs = [embedded.start("producer", "check", DOCLLM_REDIS_URL=wrong) for wrong in refused]
    for program in programs:
        program.wait(SOON_S)

    messages = [
        "".join(line for line in program.out.splitlines() if " redis: " in line)
        for program in programs
    ]
    assert [
        words for words, line in zip(refused.values(), messages, strict=True) if words not in line
    ] == []
    assert CANARY not in embedded.said()


@pytest.mark.parametrize(
    "name",
    [
        *FIXED_CLIENT_SETTINGS,
        *EXECUTING,
        *SET_BY_DOCLLM,
        "check.crcs",
        "partition.assignment.strategy",
        "oauth_cb",
    ],
)
def test_setting_that_would_break_a_promise_is_refused(tmp_path: Path, name: str) -> None:
    """[kafka.client] refuses settings that lose work, run code or belong to docllm.

    Their values are not repeated.
    """
    write_client(tmp_path / "docllm.toml", {name: CANARY})

    with pytest.raises(ConfigError) as refused:
        build_clients(load_config(flags={}, environ=SERVERS, cwd=tmp_path).kafka)

    assert re.search(rf"kafka\.client[\].] ?{re.escape(name)} ", str(refused.value))
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"mysql://u:{CANARY}@h/d?ssl_ca=ca.pem&ssl_disabled=false", "ssl_disabled after"),
        (
            f"mysql://u:{CANARY}@h/d?ssl_ca=ca.pem&ssl_verify_identity=true",
            "ssl_verify_identity after",
        ),
        (f"mysql://u@h/d?password={CANARY}", "password after"),
        (f"mysql://u:{CANARY}@h/d?ssl_cert=me.pem", "ssl_ca=FILE"),
        (
            f"mysql://u:{CANARY}@h/d?ssl_ca=ca.pem&ssl_check_hostname={CANARY}",
            "ssl_check_hostname=true",
        ),
        (f"mysql://u:p@{CANARY}@h/d", "%40"),
        (f"mysql://u:p@h:{CANARY}/d", "HOST:3306"),
    ],
)
def test_database_address_that_would_weaken_tls_or_show_a_password_is_refused(
    tmp_path: Path, url: str, words: str
) -> None:
    """Database options that would weaken TLS or show a password are refused beforehand.

    The driver reads some of them otherwise than they look, and would quote others in an error.
    """
    with pytest.raises(ConfigError) as refused:
        load_config(flags={}, environ=SERVERS | {"DOCLLM_DATABASE_URL": url}, cwd=tmp_path)

    assert words in str(refused.value)
    assert CANARY not in str(refused.value)


def start(
    deployment: Deployment, number: int, refusal: Refused, client: Mapping[str, str]
) -> Program:
    """Start the command with its own configuration file."""
    file = deployment.folder / f"{number}.toml"
    write_client(file, {**client, **refusal.client})
    return deployment.start(
        *refusal.command, "--group", deployment.group, "--config", str(file), **refusal.environ
    )


def last_line(program: Program) -> str:
    """Return the last line of a program's output."""
    return program.err.splitlines()[-1]


def write_client(file: Path, client: Mapping[str, str]) -> None:
    """Write a configuration file with these Kafka client settings."""
    file.write_text(
        "[kafka.client]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in client.items())
    )


def build_clients(config: KafkaConfig) -> None:
    """Build the settings of every kind of client."""
    kinds: tuple[Callable[[KafkaConfig], object], ...] = (
        admin_settings,
        producer_settings,
        lambda kafka: consumer_settings(kafka, "g"),
    )
    for settings in kinds:
        settings(config)

"""The servers with TLS and passwords, and the authority that signs their certificates.

A certificate is valid for the address 127.0.0.1 alone, so `localhost` is a wrong host name.
"""

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pymysql
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, though not in __all__
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDB
from tests.servers.process import listens
from tests.servers.redis import Redis

HOST = IPv4Address("127.0.0.1")
WRONG_HOST = "localhost"
ANSWER_S = 10.0
DAY = timedelta(days=1)
LISTENER = "listener.name.sasl_ssl"
LOGIN = "org.apache.kafka.common.security"


class Authority:
    """A certificate authority with its files in a folder; clients trust the file `ca`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._key = generate_private_key(SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(
            self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=0))
        )

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """Return the files of a new certificate for 127.0.0.1 or named hosts, and of its key."""
        key = generate_private_key(SECP256R1())
        certificate, secret = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts] or [
            x509.IPAddress(HOST)
        ]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate.write_bytes(self._signed(subject, key, x509.SubjectAlternativeName(names)))
        secret.touch(mode=0o600)
        secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return certificate, secret

    def _signed(
        self, subject: x509.Name, key: EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> bytes:
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(
                self._name,
                subject,
                key.public_key(),
                x509.random_serial_number(),
                now - DAY,
                now + DAY,
            )
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .sign(self._key, SHA256())
        )
        return certificate.public_bytes(Encoding.PEM)


class SecureKafka(Kafka):
    """A Kafka node whose only listener for clients is SASL_SSL.

    The user `docllm` logs in with SCRAM, the set-up with PLAIN.
    """

    def __init__(self, *, folder: Path, authority: Authority, password: str) -> None:
        super().__init__(folder=folder)
        self._authority = authority
        self._password = password
        self._certificate, self._key = authority.issue("kafka")

    @property
    def client(self) -> dict[str, str]:
        """Return the settings that [kafka.client] needs."""
        return self._login("SCRAM-SHA-512", "docllm")

    def start(self, *, timeout_s: float = 60.0) -> None:
        """Start, and make the user of clients."""
        super().start(timeout_s=timeout_s)
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion("docllm", scram, self._password.encode())
        # Kept until the answer arrives: a garbage-collected client never delivers its answers.
        admin = self._admin()
        admin.alter_user_scram_credentials([user])["docllm"].result(ANSWER_S)

    def ready(self) -> bool:
        """Return whether the broker lists its topics."""
        if not listens(self.port):
            return False
        try:
            return bool(self._admin().list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def prepare(self) -> None:
        """Write key and certificate as Kafka reads them, then prepare as without TLS."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._keystore.touch(mode=0o600)
        self._keystore.write_text(self._key.read_text() + self._certificate.read_text())
        super().prepare()

    @property
    def _keystore(self) -> Path:
        return self.folder / "keystore.pem"

    def _login(self, mechanism: str, user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": self._password,
            "ssl.ca.location": str(self._authority.ca),
        }

    def _admin(self) -> AdminClient:
        quiet: dict[str, Any] = {"error_cb": lambda _: None, "log_level": 0}
        return AdminClient(
            {**self._login("PLAIN", "admin"), "bootstrap.servers": self.bootstrap, **quiet}
        )

    def _settings(self) -> dict[str, str]:
        plain = (
            f'{LOGIN}.plain.PlainLoginModule required username="admin" '
            f'password="{self._password}" user_admin="{self._password}";'
        )
        controller = f"CONTROLLER://127.0.0.1:{self._controller_port}"
        secure = {
            "listeners": f"SASL_SSL://{self.bootstrap},{controller}",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            f"{LISTENER}.plain.sasl.jaas.config": plain,
            f"{LISTENER}.scram-sha-512.sasl.jaas.config": (
                f"{LOGIN}.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.ca),
        }
        return super()._settings() | secure


class SecureMariaDB(MariaDB):
    """A MariaDB that accepts connections with TLS only."""

    def __init__(self, *, folder: Path, authority: Authority, password: str) -> None:
        super().__init__(folder=folder)
        self._authority = authority
        self._password = password
        self._certificate, self._key = authority.issue("mariadb")

    def create_database(self, name: str) -> str:
        """Make an empty database and a user of the same name; return their address.

        The user has the server's password.
        """
        super().create_database(name)
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE USER '{name}'@'127.0.0.1' IDENTIFIED BY '{self._password}'")
            cursor.execute(f"GRANT ALL PRIVILEGES ON `{name}`.* TO '{name}'@'127.0.0.1'")
        server = f"{name}:{self._password}@127.0.0.1:{self.port}"
        return f"mysql://{server}/{name}?ssl_ca={self._authority.ca}"

    def command(self) -> Sequence[str]:
        """Return the server's command line."""
        tls = [
            "--require-secure-transport=ON",
            f"--ssl-cert={self._certificate}",
            f"--ssl-key={self._key}",
        ]
        return [*super().command(), *tls]

    def _connect(self) -> "pymysql.Connection[pymysql.cursors.Cursor]":
        tls = {"ca": str(self._authority.ca)}
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="docllm",
            ssl=tls,
            connect_timeout=2,
            read_timeout=10,
        )


class SecureRedis(Redis):
    """A Redis with a password that listens for TLS only."""

    def __init__(self, *, folder: Path, authority: Authority, password: str) -> None:
        super().__init__(folder=folder)
        self._authority = authority
        self._password = password
        self._certificate, self._key = authority.issue("redis")

    @property
    def url(self) -> str:
        """Return the address for clients."""
        return (
            f"rediss://:{self._password}@127.0.0.1:{self.port}/0?ssl_ca_certs={self._authority.ca}"
        )

    def command(self) -> Sequence[str]:
        """Return the server's command line."""
        tls = [
            "--tls-port",
            str(self.port),
            "--tls-cert-file",
            str(self._certificate),
            "--tls-key-file",
            str(self._key),
        ]
        rest = ["--tls-auth-clients", "no", "--requirepass", self._password]
        return [*super().command(), "--port", "0", *tls, *rest]

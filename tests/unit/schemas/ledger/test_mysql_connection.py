"""Connections of one program share what is slow to make."""

import ssl
from pathlib import Path

import pytest

from docllm.schemas.ledger.mysql_connection import MySQLConnection, unverified


def test_connections_share_one_tls_context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Connections share one TLS context.

    Each try used to load the system's certificates and verify nothing. That cost 25 ms and
    megabytes, eight times a second in an outage.
    """
    made: list[object] = []

    def create_default_context(**options: object) -> ssl.SSLContext:
        made.append(options)
        return unverified()

    monkeypatch.setattr(ssl, "create_default_context", create_default_context)

    tries = [MySQLConnection(host="127.0.0.1", user="u", defer_connect=True) for _ in range(3)]
    MySQLConnection(host="127.0.0.1", user="u", ssl_ca=str(tmp_path / "ca.pem"), defer_connect=True)

    assert [attempt.ctx for attempt in tries] == [unverified()] * 3  # type: ignore[attr-defined]
    assert made == [{"cafile": str(tmp_path / "ca.pem"), "capath": None}]
    assert unverified().verify_mode is ssl.CERT_NONE

"""PyMySQL's connection, made cheap to try: one TLS context for all that have no `ssl_` options.

PyMySQL makes a context for each attempt and loads the system's certificates into it, though without
such options it verifies none. That takes some 25 ms of CPU and megabytes of memory, which each
waiting thread would spend each second while the server is away.
"""

import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any

from pymysql.connections import Connection


class MySQLConnection(Connection):
    """A connection that encrypts where the server offers it, as PyMySQL's own does."""

    _read_timeout: float  # PyMySQL's; its stubs do not name it

    def _create_ssl_ctx(self, sslp: Mapping[str, Any]) -> ssl.SSLContext:
        """Return the context of these options; the files that they name are read again each time."""
        if not sslp:
            return unverified()
        made: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]  # not in its stubs
        return made


@cache
def unverified() -> ssl.SSLContext:
    """Return the context that encrypts and verifies nothing; connections may share it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

"""PyMySQL's connection, made cheap to try again while the server is away.

Without `ssl_` options, all connections of a process share one TLS context. PyMySQL itself creates a
context for each attempt and loads the system's certificates into it, although without such options
it verifies nothing. That takes some 25 ms of CPU and megabytes of memory. Each waiting thread would
spend them each second while the server is away.
"""

import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any

from pymysql.connections import Connection


class MySQLConnection(Connection):
    """A connection that encrypts if the server offers it, like PyMySQL's own."""

    _read_timeout: float  # PyMySQL's attribute, missing in its stubs

    def _create_ssl_ctx(self, sslp: Mapping[str, Any]) -> ssl.SSLContext:
        """Return the context for these options.

        The files that the options name are read again each time, because they may have been
        exchanged.
        """
        if not sslp:
            return unverified()
        # The stubs lack this method.
        context: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
        return context


@cache
def unverified() -> ssl.SSLContext:
    """Return the context that encrypts and verifies nothing; connections share it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

"""A separate connection to MariaDB, for the foreign transactions and commands of a run."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pymysql

from tests.faults.site import Site

ANSWER_S = 60


@contextmanager
def opened(site: Site) -> Iterator[pymysql.Connection]:
    """Yield a connection to the ledger's database that commits each statement by itself."""
    name = site.ledger_url.rpartition("/")[2]
    with closing(
        pymysql.connect(
            host="127.0.0.1",
            port=site.database.port,
            user="docllm",
            database=name,
            connect_timeout=ANSWER_S,
            read_timeout=ANSWER_S,
            autocommit=True,
        )
    ) as connection:
        yield connection


def counter(cursor: pymysql.cursors.Cursor, name: str) -> int:
    """Return one of the server's counters."""
    cursor.execute("SHOW GLOBAL STATUS LIKE %s", (name,))
    row = cursor.fetchone()
    return int(row[1]) if row else 0

"""Names the settings of a server under which docllm cannot work, and what to set instead.

Some are seen in the server's variables, before anything fails; the others in its errors. A program
that runs waits for a change of them, as in an outage.
"""

import re

from sqlalchemy import Connection, text

from docllm.schemas.ledger.errors import READ_ONLY, code

_BINLOG = (
    "its binlog_format is STATEMENT, with which it refuses what docllm writes; "
    "set binlog_format=ROW or MIXED"
)
_READ_ONLY = (
    "it is read-only, as a replica is; name the primary in DOCLLM_DATABASE_URL, "
    "or set read_only=OFF on it"
)
_GTID = "its enforce_gtid_consistency refuses a statement; connect to a server without it"
_PRIMARY_KEY = (
    "it refuses a table without a primary key; "
    "set sql_require_primary_key=OFF or innodb_force_primary_key=OFF while migrate runs"
)
_PAGE = (
    "its pages or rows are too small for docllm's tables; set innodb_page_size=16k or more and "
    "innodb_default_row_format=DYNAMIC, which needs a new server"
)
_ENGINE = "its InnoDB is switched off; remove InnoDB from disabled_storage_engines"
_VERSION = "it is too old; docllm needs MySQL 8.0, MariaDB 10.6, or newer"
# By error number.
_CAUSES = {
    **dict.fromkeys(READ_ONLY, _READ_ONLY),
    **dict.fromkeys((1661, 1663, 1665), _BINLOG),
    1153: "its max_allowed_packet is too small; set max_allowed_packet=64M",
    1197: "its max_binlog_cache_size is too small; set it to 1G or more",
    **dict.fromkeys((1785, 1786, 1787), _GTID),
    3098: "a plugin of its replication refuses a table; the error log of the server names the rule",
    **dict.fromkeys((1173, 3750), _PRIMARY_KEY),
    **dict.fromkeys((1071, 1118, 1709), _PAGE),
    **dict.fromkeys((1286, 3161), _ENGINE),
    1193: _VERSION,
}
_OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0)}
_VARIABLES = text(
    "SHOW VARIABLES WHERE Variable_name IN"
    " ('log_bin', 'binlog_format', 'innodb_read_only', 'super_read_only', 'version')"
)


def cause(error: BaseException) -> str:
    """Return which setting of the server an error comes from, and what to set; "" if none."""
    return _CAUSES.get(code(error), "")


def refusing(connection: Connection) -> str:
    """Return which setting of the server keeps docllm from writing; "" if none does."""
    if connection.dialect.name == "sqlite":
        return ""
    variables = {row[0]: str(row[1]).upper() for row in connection.execute(_VARIABLES)}
    if _is_old(variables.get("version", "")):
        return f"{_VERSION}, and this is {variables['version']}"
    if variables.get("log_bin") == "ON" and variables.get("binlog_format") == "STATEMENT":
        return _BINLOG
    if "ON" in {variables.get("innodb_read_only"), variables.get("super_read_only")}:
        return _READ_ONLY
    return ""


def _is_old(version: str) -> bool:
    number = re.search(r"(\d{1,3})\.(\d{1,3})", version.removeprefix("5.5.5-"))
    kind = "MariaDB" if "MARIADB" in version else "MySQL"
    return number is not None and (int(number[1]), int(number[2])) < _OLDEST[kind]

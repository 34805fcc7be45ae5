"""Asks how large a reply may be that a settle stores."""

from sqlalchemy import Connection, text

from docllm.agent.ports.llm import MAX_REPLY_BYTES


def reply_limit_bytes(connection: Connection) -> int:
    """Return the largest size of a stored reply, in bytes.

    Bodies travel as hexadecimal digits, and a page of settles holds more than one of them.
    """
    if connection.dialect.name == "sqlite":
        return MAX_REPLY_BYTES
    packet = int(connection.execute(text("SELECT @@max_allowed_packet")).scalar_one())
    return min(MAX_REPLY_BYTES, packet // 4)

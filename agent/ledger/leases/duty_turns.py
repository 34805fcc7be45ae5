"""Turns: the right of one agent to do some work for a limited time.

A turn expires by itself.
"""

import hashlib
import secrets
from datetime import UTC

from sqlalchemy import Connection, or_, update

from docllm.producer.ledger.dead_letters import selection_query
from docllm.schemas.ledger.sql import insert_new
from docllm.schemas.ledger.tables import id_block

_MICRO, _MILLI = 1_000_000, 1_000


def take(connection: Connection, name: str, last_number: int, length_s: float) -> int:
    """Take the turn of this name, or renew it; return its number, 0 if another agent has it.

    `last_number` is the number of the caller's last turn, 0 for none. The number is the turn's end
    in microseconds, whose last three digits are random: no two agents have the same number, also if
    the database's clock goes back.
    """
    key = f"turn:{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}"
    now = selection_query.now(connection).replace(tzinfo=UTC)
    now_us = int(now.timestamp() * _MICRO)
    end_ms = (now_us + int(length_s * _MICRO)) // _MILLI
    number = end_ms * _MILLI + secrets.randbelow(_MILLI)
    connection.execute(insert_new(connection, id_block), {"name": key, "next": 0})
    is_free = or_(id_block.c.next < now_us, id_block.c.next == last_number)
    taken = update(id_block).where(id_block.c.name == key, is_free).values(next=number)
    return number if connection.execute(taken).rowcount else 0

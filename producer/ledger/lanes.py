"""Which lanes a group has, by the topics that `topics apply` stored."""

import orjson
from sqlalchemy import Connection, bindparam, select

from docllm.schemas.ledger.tables import group_info
from docllm.schemas.task.record.lanes import ADDED
from docllm.schemas.task.record.topics import Topics

_STORED = select(group_info.c.topic_ids).where(group_info.c.group_name == bindparam("of_group"))


def made(connection: Connection, group: str) -> bool:
    """Return whether the group has all lanes; one of an older version has the normal one alone."""
    stored = connection.execute(_STORED, {"of_group": group}).scalar()
    ids = orjson.loads(stored) if stored else {}
    topics = Topics(group)
    return all(topics.name(destination) in ids for destination in ADDED)

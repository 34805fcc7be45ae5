"""The agent of a claim, in a statement."""

from typing import Any

from sqlalchemy.sql.elements import ColumnElement

from docllm.schemas.task.owner import OWNER_BITS


def agent_in(owner: ColumnElement[Any]) -> ColumnElement[int]:
    """Return the id of the agent in a column of owners."""
    return owner.op(">>")(OWNER_BITS)

"""A record that names no trustworthy task, as a value."""

from dataclasses import dataclass

from docllm.schemas.task.failures import Disposition
from docllm.schemas.task.record.envelope import RawHeaders


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A rejected record, its place, and the reason."""

    topic_id: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: RawHeaders
    reason: str
    disposition: Disposition = Disposition.UNDECODABLE

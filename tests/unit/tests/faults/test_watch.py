"""The parsing of Kafka's own records of commits."""

import struct

from tests.faults.watch import Committed, _commit


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def test_a_commit_is_read() -> None:
    """Group, topic and partition come from the key; the value begins with the offset."""
    key = struct.pack(">h", 1) + text("docllm") + text("docllm.tasks") + struct.pack(">i", 3)
    value = struct.pack(">hqi", 3, 4711, -1) + text("") + struct.pack(">q", 1)

    assert list(_commit(key, value, 5.0)) == [
        Committed(group="docllm", topic="docllm.tasks", number=3, offset=4711, at_s=5.0)
    ]


def test_everything_else_is_left_out() -> None:
    """Other keys and keys without a value are skipped.

    Members have keys of other versions; a deleted group leaves a key without a value.
    """
    assert list(_commit(struct.pack(">h", 2) + text("docllm"), b"member", 5.0)) == []
    assert list(_commit(struct.pack(">h", 1) + text("docllm"), None, 5.0)) == []

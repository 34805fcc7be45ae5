"""What Kafka keeps of a commit is read as it is written there."""

import struct

from tests.faults.watch import Committed, _commit


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def test_a_commit_is_read() -> None:
    """Group, topic and partition are the key's, the offset begins the value."""
    key = struct.pack(">h", 1) + text("docllm") + text("docllm.tasks") + struct.pack(">i", 3)
    value = struct.pack(">hqi", 3, 4711, -1) + text("") + struct.pack(">q", 1)

    assert list(_commit(key, value, 5.0)) == [Committed("docllm", "docllm.tasks", 3, 4711, 5.0)]


def test_everything_else_is_left_out() -> None:
    """Members have keys of other versions; a group that is deleted leaves a key without a value."""
    assert list(_commit(struct.pack(">h", 2) + text("docllm"), b"member", 5.0)) == []
    assert list(_commit(struct.pack(">h", 1) + text("docllm"), None, 5.0)) == []

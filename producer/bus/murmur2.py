"""Kafka's partitioner: a keyed record gets the same partition number on either bus."""

import struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit hash of a key, unsigned."""
    words = len(data) // 4
    h = _SEED ^ len(data)
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * _M & _MASK  # noqa: PLW2901 - mixing is what the loop is for
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    tail = data[words * 4 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int, salt: int = 0) -> int:
    """Return the partition of a key among `partitions`, as Kafka's default partitioner does.

    With a `salt`, each salt gives another partition.
    """
    # Salt and key are hashed together, not added: salts may rise by two, and one agent may own
    # every second partition.
    hashed = key + b"\0%d" % salt if salt else key
    return (murmur2(hashed) & 0x7FFFFFFF) % partitions

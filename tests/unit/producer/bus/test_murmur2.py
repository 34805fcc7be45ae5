"""Kafka's hash, against the vectors of Kafka's own tests."""

import pytest

from docllm.producer.bus.murmur2 import murmur2, partition_of

# From Kafka's UtilsTest and librdkafka's rdmurmur2.c. Kafka's values are signed.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"kafka": 0xD067CF64,
    b"giberish123456789": 0x8F552B0C,
    b"1234": 0x9FC97B14,
    b"234": 0xE7C009CA,
    b"34": 0x873930DA,
    b"4": 0x5A4B5CA1,
    b"": 0x106E08D9,
}


@pytest.mark.parametrize(("key", "expected"), VECTORS.items())
def test_hash_equals_kafkas(key: bytes, expected: int) -> None:
    """Each known key has the hash that Kafka gives it."""
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_partition_ignores_the_sign() -> None:
    """The sign bit is dropped before the remainder is taken, as Kafka does."""
    assert partition_of(b"foobar", 7) == (-790332482 & 0x7FFFFFFF) % 7

"""Writes a record whose header name may be any bytes, as a producer in C can.

The Python client takes only texts.
"""

import ctypes
from pathlib import Path

import confluent_kafka

END, TOPIC, VALUE, MSGFLAGS, HEADER = 0, 1, 4, 7, 9  # rd_kafka_vtype_t
COPY, PRODUCER = 2, 0
FLUSH_MS = 15_000


def write(bootstrap: str, topic: str, value: bytes, header: tuple[bytes, bytes]) -> None:
    """Write one record and wait until the brokers have it. Raises OSError if they refuse it."""
    library = _library()
    conf = library.rd_kafka_conf_new()
    error = ctypes.create_string_buffer(512)
    library.rd_kafka_conf_set(
        ctypes.c_void_p(conf), b"bootstrap.servers", bootstrap.encode(), error, len(error)
    )
    producer = ctypes.c_void_p(
        library.rd_kafka_new(PRODUCER, ctypes.c_void_p(conf), error, len(error))
    )
    if not producer.value:
        raise OSError(error.value.decode())
    size = ctypes.c_size_t
    failed = library.rd_kafka_producev(
        producer,
        *(TOPIC, topic.encode()),
        *(VALUE, value, size(len(value))),
        *(MSGFLAGS, COPY),
        *(HEADER, header[0], header[1], size(len(header[1]))),
        END,
    )
    failed = failed or library.rd_kafka_flush(producer, FLUSH_MS)
    library.rd_kafka_destroy(producer)
    if failed:
        raise OSError(f"the record was not written: error {failed}")


def _library() -> ctypes.CDLL:
    """Return the librdkafka that comes with the Python client."""
    (partition,) = (
        Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka-*.so*")
    )
    library = ctypes.CDLL(str(partition))
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    return library

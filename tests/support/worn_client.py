"""A fatal error in a Kafka client, which only brokers can cause otherwise."""

import ctypes

from confluent_kafka import Consumer, KafkaError, Producer, cimpl


def wear_out(client: Producer | Consumer) -> None:
    """Cause a fatal error in this client, as brokers cause one.

    `Producer` and `Consumer` have no method for it.
    """
    library = ctypes.CDLL(cimpl.__file__)
    library.rd_kafka_test_fatal_error.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    # The first field of the Python object.
    handle = ctypes.c_void_p.from_address(id(client) + object.__basicsize__)
    library.rd_kafka_test_fatal_error(handle, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"worn out")

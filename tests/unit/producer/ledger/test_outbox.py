"""The packed items of a publish order."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.producer.ledger import outbox
from docllm.producer.ledger.outbox import QUARANTINE, TASK
from docllm.producer.ports import DELIVERY_LIMIT_S, Item

ITEMS = st.lists(
    st.tuples(
        st.sampled_from([TASK, QUARANTINE]),
        st.integers(1, 2**63 - 1),
        st.integers(0, 2**32 - 1),
    )
)


@given(ITEMS)
def test_items_come_back_as_they_were_packed(items: list[Item]) -> None:
    """Kind, id and fence of each item survive packing, in order."""
    assert list(outbox.unpack(outbox.pack(items))) == items


def test_a_full_order_fits_a_row() -> None:
    """A full order of a thousand items of 13 bytes fits a row."""
    assert len(outbox.pack([Item(TASK, number, 0) for number in range(outbox.MAX_ITEMS)])) == 13_000


def test_a_blob_that_was_cut_is_an_error() -> None:
    """A truncated blob is an error, and never read as other items."""
    with pytest.raises(struct.error):
        outbox.unpack(outbox.pack([Item(TASK, 1, 0)])[:-1])


def test_one_publish_ends_before_another_process_takes_the_order() -> None:
    """A writer hears about a slice before its grace ends, a relay before its lease does."""
    assert DELIVERY_LIMIT_S < outbox.GRACE_S < outbox.RELAY_LEASE_S

"""A record becomes a delivery that knows its route."""

import pytest

from docllm.agent.inflight.decoder import RecordDecoder
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.ports import Record, RejectedRecord
from docllm.agent.routes import RouteNames
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.envelope import Publication, encode
from docllm.schemas.task.record.hints import PLAIN, Hints
from tests.support.routes import ROUTE
from tests.support.slots import PARTITION


@pytest.mark.parametrize(
    ("hints", "route"), [(Hints(model="large"), "large"), (Hints("openai"), ROUTE), (PLAIN, ROUTE)]
)
def test_a_record_comes_with_its_route(hints: Hints, route: str) -> None:
    """A record's route comes from the model in its headers, or is the default one."""
    arrivals = RecordDecoder(ledger_id="00" * 16, group="g", naming=RouteNames(Config()))
    headers = list(
        encode(Publication(ledger="00" * 16, group="g", batch="b", task_id=7, fence=0, hints=hints))
    )

    read = arrivals.read(
        Record(
            partition=PARTITION,
            offset=0,
            timestamp_ms=0,
            key=b"k",
            value=b"no body is read here",
            headers=headers,
        )
    )

    assert isinstance(read, Delivery)
    assert read.route == route


def test_a_dead_letter_that_was_written_back_is_no_publication() -> None:
    """A dead letter on the topic that it came from is never taken for a record of its task."""
    arrivals = RecordDecoder(ledger_id="00" * 16, group="g", naming=RouteNames(Config()))
    headers = [
        *encode(Publication(ledger="00" * 16, group="g", batch="b", task_id=7, fence=0)),
        ("docllm-disposition", b"permanent"),
    ]

    read = arrivals.read(
        Record(
            partition=PARTITION, offset=0, timestamp_ms=0, key=None, value=b"{}", headers=headers
        )
    )

    assert isinstance(read, RejectedRecord)
    assert read.headers == headers


@pytest.mark.parametrize(
    ("value", "named", "tenant"),
    [(b'{"id":"a","tenant":"bolt"}', "", "default"), (b"{}", "acme", "acme"), (None, "a", "a")],
)
def test_a_record_comes_with_its_tenant(value: bytes | None, named: str, tenant: str) -> None:
    """The record's header names the tenant of any task that has one."""
    arrivals = RecordDecoder(ledger_id="00" * 16, group="g", naming=RouteNames(Config()))
    headers = list(
        encode(
            Publication(ledger="00" * 16, group="g", batch="b", task_id=7, fence=0, tenant=named)
        )
    )

    read = arrivals.read(
        Record(
            partition=PARTITION, offset=0, timestamp_ms=0, key=b"k", value=value, headers=headers
        )
    )

    assert isinstance(read, Delivery)
    assert read.tenant == tenant

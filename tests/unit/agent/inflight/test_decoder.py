"""A record becomes a delivery that knows its route."""

import orjson
import pytest

from docllm.agent.inflight.decoder import RecordDecoder
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.ports import Record, RejectedRecord
from docllm.agent.routes import RouteNames
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.envelope import Publication, encode
from tests.support.routes import ROUTE
from tests.support.slots import PARTITION


@pytest.mark.parametrize(
    ("line", "route"), [({"id": "a", "prompt": "p", "model": "large"}, "large"), (None, ROUTE)]
)
def test_a_record_comes_with_its_route(line: dict[str, str] | None, route: str) -> None:
    """A record's route comes from the model in its value, or is the default one."""
    arrivals = RecordDecoder(ledger_id="00" * 16, group="g", naming=RouteNames(Config()))
    headers = list(encode(Publication(ledger="00" * 16, group="g", batch="b", task_id=7, fence=0)))

    read = arrivals.read(
        Record(
            partition=PARTITION,
            offset=0,
            timestamp_ms=0,
            key=b"k",
            value=None if line is None else orjson.dumps(line),
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
    ("line", "named", "tenant"),
    [
        ({"id": "a", "prompt": "p"}, "", "default"),
        ({"id": "a", "prompt": "p", "tenant": "bolt"}, "", "bolt"),
        ({"custom_id": "a", "body": {}}, "acme", "acme"),
        (None, "acme", "acme"),
    ],
)
def test_a_record_comes_with_its_tenant(
    line: dict[str, str] | None, named: str, tenant: str
) -> None:
    """The record's header names the tenant that its line does not know, else its line does."""
    arrivals = RecordDecoder(ledger_id="00" * 16, group="g", naming=RouteNames(Config()))
    headers = list(
        encode(
            Publication(ledger="00" * 16, group="g", batch="b", task_id=7, fence=0, tenant=named)
        )
    )
    value = None if line is None else orjson.dumps(line)

    read = arrivals.read(
        Record(
            partition=PARTITION, offset=0, timestamp_ms=0, key=b"k", value=value, headers=headers
        )
    )

    assert isinstance(read, Delivery)
    assert read.tenant == tenant

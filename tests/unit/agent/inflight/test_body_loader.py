"""What a claimed task's body says holds, whatever its record's headers said."""

import asyncio

import orjson
import pytest

from docllm.agent.inflight.decoder import BodyLoader, RecordDecoder
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import Record
from docllm.agent.ports.outcome import Spent, Succeeded
from docllm.agent.routes import DEFAULT, RouteNames
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig
from docllm.schemas.task.record.envelope import Publication, digest, encode
from docllm.schemas.task.record.hints import PLAIN, Hints, hints_of
from tests.support.ledger import FakeLedger
from tests.support.slots import PARTITION

CONFIG = Config(
    llm=LLMConfig(base_url="http://h", model="mini"),
    routes={"fast": RouteConfig(model="fast-8b"), "own": RouteConfig()},
)
LINE = {"id": "a", "prompt": "{document}", "input": {"text": "x"}}
FAST = LINE | {"model": "fast-8b"}


class Harness:
    """An agent that reads one record and claims its task."""

    def __init__(self) -> None:
        self.naming = RouteNames(CONFIG)
        self.ledger = FakeLedger()
        self.table = InFlightTable(limits=InFlightLimits())
        self.loader = BodyLoader(ledger=self.ledger, table=self.table, naming=self.naming)

    def delivery(self, value: bytes | None, hints: Hints) -> Delivery:
        publication = Publication(
            ledger="00" * 16, group="g", batch="b", task_id=7, fence=0, hints=hints
        )
        decoder = RecordDecoder(ledger_id="00" * 16, group="g", naming=self.naming)
        read = decoder.read(Record(PARTITION, 0, 0, b"a", value, list(encode(publication))))
        assert isinstance(read, Delivery)
        self.table.add(read, 0.0, redelivered=False)
        return read

    def claim(self, delivery: Delivery, *, moving: bool = False) -> bool:
        """Return whether the delivery must be claimed again."""
        return delivery in asyncio.run(self.loader.fetch([delivery], moving=moving))


@pytest.mark.parametrize("line", [LINE, FAST, LINE | {"route": "own", "routes_allowed": ["own"]}])
def test_a_task_whose_headers_are_true_runs_after_one_claim(line: dict[str, object]) -> None:
    """Its line is read for the attempt."""
    harness = Harness()
    delivery = harness.delivery(orjson.dumps(line), hints_of(line))

    assert not harness.claim(delivery)
    assert delivery.line == line
    assert harness.ledger.wanted_bodies == []


@pytest.mark.parametrize(
    ("line", "hints", "route"),
    [
        (FAST, PLAIN, "fast"),
        (LINE, Hints(model="fast-8b"), DEFAULT),
        (LINE, Hints(route="fast"), DEFAULT),
        (LINE, Hints(route="gone"), DEFAULT),
        (LINE | {"route": "gone"}, PLAIN, "gone"),
        (LINE, Hints(model="\ufffd" * 300, document_bytes=1 << 40, most_out=1 << 40), DEFAULT),
    ],
)
def test_a_header_that_lies_about_the_route_costs_one_claim(
    line: dict[str, object], hints: Hints, route: str
) -> None:
    """The task is claimed again for the route of its body, once."""
    harness = Harness()
    delivery = harness.delivery(orjson.dumps(line), hints)

    assert harness.claim(delivery)
    assert (delivery.route, delivery.plan.route, delivery.hints) == (route, route, hints_of(line))
    assert not harness.claim(delivery)


def test_a_header_that_lies_about_the_size_or_the_bounds_is_corrected() -> None:
    """The route is right, so the claim holds; estimates and fallbacks follow the body."""
    harness = Harness()
    line = LINE | {"routes_allowed": ["own"], "params": {"max_tokens": 7}}
    delivery = harness.delivery(orjson.dumps(line), Hints("note", most_out=9000))

    assert not harness.claim(delivery)
    assert (delivery.size.task_type, delivery.size.most_out) == ("document", 7)
    assert not delivery.plan.allows(DEFAULT)


@pytest.mark.parametrize("moving", [False, True])
def test_a_record_without_a_body_gets_it_after_the_claim(moving: bool) -> None:  # noqa: FBT001
    """The ledger has it; its digest is then known."""
    harness = Harness()
    value = orjson.dumps(FAST)
    harness.ledger.stored_bodies = {7: (b"a", value)}
    delivery = harness.delivery(None, PLAIN)

    assert harness.claim(delivery, moving=moving)
    assert (delivery.value, delivery.digest, delivery.line) == (value, digest(b"a", value), FAST)
    assert delivery.route == "fast"


def test_a_body_that_was_dropped_is_not_read_for_a_move() -> None:
    """Its task makes no call."""
    harness = Harness()
    delivery = harness.delivery(orjson.dumps(LINE), PLAIN)
    harness.table.drop_bodies(delivery)

    assert not harness.claim(delivery, moving=True)
    assert harness.ledger.wanted_bodies == []


def test_a_task_with_a_paid_answer_needs_no_body() -> None:
    """It only settles."""
    harness = Harness()
    delivery = harness.delivery(orjson.dumps(LINE), PLAIN)
    delivery.kept_answer = Succeeded(b"{}", 0, Spent())

    assert not harness.claim(delivery)
    assert delivery.line is None


def test_a_route_that_the_settings_have_gained_is_known_after_the_claim() -> None:
    """The header named it before."""
    harness = Harness()
    line = LINE | {"route": "new"}
    delivery = harness.delivery(orjson.dumps(line), hints_of(line))
    assert not delivery.plan.known

    harness.naming.apply(Config(llm=CONFIG.llm, routes={"new": RouteConfig()}))

    assert not harness.claim(delivery)
    assert delivery.plan.known


@pytest.mark.parametrize("value", [b"", b"[1]", b"\xff", b"{" * 3000])
def test_a_body_that_cannot_be_read_is_left_to_its_attempt(value: bytes) -> None:
    """The attempt says what is wrong with it."""
    harness = Harness()
    delivery = harness.delivery(value, PLAIN)

    assert not harness.claim(delivery)
    assert delivery.line is None

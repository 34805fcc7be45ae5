"""What a load sets for its whole batch: a claim tells it, and a later load keeps it."""

import orjson

from docllm.producer.ledger import batch_options
from docllm.producer.ledger.batch_options import TaskDefaults
from docllm.schemas.ledger.tables import batch
from tests.support.ledger_database import LedgerDatabase


def test_the_claim_tells_which_routes_the_batch_allows(ledger_db: LedgerDatabase) -> None:
    """A load may bound the routes of its batch, also later and anew; other options stay."""
    (task_id,) = ledger_db.load("a")
    into = ledger_db.batch()
    ledger_db.set(batch, into.id, options='{"later": 1, "routes_allowed": "a"}')

    def allowed() -> tuple[str, ...] | None:
        owner = ledger_db.agent().next_owner()
        _, row = ledger_db.answers([ledger_db.record(task_id)], owner, 600.0)[task_id]
        assert row is not None
        return row.routes_allowed

    assert allowed() is None
    ledger_db.call(batch_options.allow_routes, into.id, ["a"])
    assert allowed() == ("a",)
    ledger_db.call(batch_options.allow_routes, into.id, ["b", "a"])
    assert allowed() == ("b", "a")
    assert orjson.loads(ledger_db.rows(batch)[0].options)["later"] == 1


def test_the_claim_tells_where_the_batch_sends_results(ledger_db: LedgerDatabase) -> None:
    """A load may send the results of its batch elsewhere; its other options stay."""
    (task_id,) = ledger_db.load("a")
    into = ledger_db.batch()
    ledger_db.call(batch_options.allow_routes, into.id, ["a"])

    def claimed() -> tuple[str, tuple[str, ...] | None]:
        owner = ledger_db.agent().next_owner()
        _, row = ledger_db.answers([ledger_db.record(task_id)], owner, 600.0)[task_id]
        assert row is not None
        return row.output_uri, row.routes_allowed

    assert claimed() == ("", ("a",))
    ledger_db.call(batch_options.send_outputs, into.id, "s3://bucket/out/")
    assert claimed() == ("s3://bucket/out/", ("a",))


def test_a_load_keeps_the_defaults_of_the_one_before(ledger_db: LedgerDatabase) -> None:
    """What a later load of a batch does not set anew stays; nonsense of others is nothing."""
    into, none = ledger_db.batch(), TaskDefaults()

    assert ledger_db.call(batch_options.set_defaults, into.id, none) == none
    assert ledger_db.rows(batch)[0].options is None
    assert ledger_db.call(
        batch_options.set_defaults, into.id, TaskDefaults(tenant="acme", priority=0)
    ) == TaskDefaults("acme", 0)
    ledger_db.call(batch_options.allow_routes, into.id, ["a"])
    assert ledger_db.call(
        batch_options.set_defaults, into.id, TaskDefaults(priority=9)
    ) == TaskDefaults("acme", 9)
    ledger_db.set(batch, into.id, options='{"tenant": 1, "priority": true}')
    assert ledger_db.call(batch_options.set_defaults, into.id, none) == none


def test_options_that_nobody_can_read_bound_nothing(ledger_db: LedgerDatabase) -> None:
    """A damaged row must not keep its batch from being claimed, or from being loaded."""
    assert [batch_options.routes_allowed(text) for text in ("{", "[]", "", None)] == [None] * 4
    assert [batch_options.output_uri(text) for text in ("{", '{"output_uri": 1}', None)] == [""] * 3
    into = ledger_db.batch()
    ledger_db.set(batch, into.id, options="{")

    ledger_db.call(batch_options.allow_routes, into.id, ["a"])

    assert batch_options.routes_allowed(ledger_db.rows(batch)[0].options) == ("a",)

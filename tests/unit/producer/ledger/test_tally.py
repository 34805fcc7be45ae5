"""Changes of a batch's counts become one row for each key."""

from types import SimpleNamespace

from sqlalchemy import create_engine, select

from docllm.producer.ledger import tally as counts
from docllm.producer.ledger.tally import NO_FINGERPRINT, TallyChange, TallyKey, write
from docllm.schemas.ledger.tables import tally
from docllm.schemas.task.states import Status

SUCCEEDED = TallyKey(
    batch_id=1, type="document", route="route", state=Status.SUCCEEDED, outcome="succeeded"
)
FAILED = TallyKey(
    batch_id=1,
    type="document",
    route="route",
    state=Status.RETRYING,
    outcome="SERVER",
    fingerprint=b"f" * 16,
)
LETTER = {
    "batch_id": 1,
    "type": "document",
    "tenant": "acme",
    "route": "gpu",
    "model": "large",
    "error_class": "TOO_LONG",
    "fingerprint": b"f" * 16,
    "disposition": "permanent",
    "attempts": 3,
    "tokens_in": 30,
    "tokens_out": 15,
    "cost_micro": 900,
    "unpriced": 2,
}


def written(*changes: TallyChange) -> list[tuple[object, ...]]:
    engine = create_engine("sqlite://")
    tally.create(engine)
    with engine.begin() as connection:
        write(connection, changes)
        rows = connection.execute(select(tally).order_by(tally.c.id)).all()
    engine.dispose()
    return [
        (
            row.state,
            row.outcome,
            row.fingerprint,
            row.delta,
            row.tokens_in,
            row.tokens_out,
            row.cost_micro,
        )
        for row in rows
    ]


def test_equal_keys_are_summed() -> None:
    """A page of settles writes one row for each kind of outcome, however many tasks it has."""
    rows = written(
        TallyChange(key=SUCCEEDED, delta=1, tokens_in=10, tokens_out=5, cost_micro=300),
        TallyChange(key=FAILED, delta=1, tokens_in=1, tokens_out=0, cost_micro=7),
        TallyChange(key=SUCCEEDED, delta=1, tokens_in=20, tokens_out=6, cost_micro=400),
    )

    assert rows == [
        (3, "succeeded", NO_FINGERPRINT, 2, 30, 11, 700),
        (2, "SERVER", b"f" * 16, 1, 1, 0, 7),
    ]


def test_no_change_is_no_row() -> None:
    """An empty group writes no row."""
    assert written() == []


def test_different_errors_are_counted_apart() -> None:
    """Different errors are counted separately: the guard needs the failures by fingerprint."""
    other = TallyKey(
        batch_id=1,
        type="document",
        route="route",
        state=Status.RETRYING,
        outcome="SERVER",
        fingerprint=b"g" * 16,
    )

    assert [row[2] for row in written(TallyChange(FAILED), TallyChange(other))] == [
        b"f" * 16,
        b"g" * 16,
    ]


def test_a_long_outcome_is_cut() -> None:
    """A foreign error class is cut to fit its column."""
    (row,) = written(
        TallyChange(
            TallyKey(batch_id=1, type="document", route="", state=Status.DEAD, outcome="X" * 100)
        )
    )

    assert row[1] == "X" * 64


def test_a_replay_takes_back_exactly_what_the_death_counted() -> None:
    """The keys are equal and the sums opposite; what the last attempt cost stays spent."""
    death = counts.died(LETTER, costs={"tokens_in": 10, "cost_micro": 300})
    replay = counts.died(LETTER, -1)

    assert death.key == replay.key
    assert (death.key.route, death.key.model, death.key.tenant) == ("gpu", "large", "acme")
    assert (death.delta, death.dead_attempts, death.dead_tokens_in) == (1, 3, 30)
    assert (replay.delta, replay.dead_attempts, replay.dead_tokens_in) == (-1, -3, -30)
    assert (death.dead_tokens_out + replay.dead_tokens_out) == 0
    assert (death.dead_cost_micro, replay.dead_cost_micro) == (900, -900)
    assert (death.dead_unpriced, replay.dead_unpriced) == (2, -2)
    assert (death.cost_micro, replay.cost_micro) == (300, 0)


def test_a_replay_takes_a_cancelled_task_back_from_its_route() -> None:
    """The count has the route and the tenant of the row, and no model."""
    row = SimpleNamespace(batch_id=1, type="document", route="gpu", tenant="acme")

    cancelled, replay = counts.cancelled(row), counts.cancelled(row, -1)

    assert cancelled.key == replay.key
    assert (cancelled.key.route, cancelled.key.model, cancelled.key.tenant) == ("gpu", "", "acme")
    assert (cancelled.delta, replay.delta) == (1, -1)

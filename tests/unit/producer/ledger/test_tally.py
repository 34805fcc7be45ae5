"""Changes of a batch's counts become one row for each key."""

from dataclasses import replace
from types import SimpleNamespace

from sqlalchemy import create_engine, select

from docllm.producer.ledger import tally as counts
from docllm.producer.ledger.tally import NO_FINGERPRINT, TallyChange, write
from docllm.schemas.ledger.tables import tally
from docllm.schemas.task.states import Status

SUCCEEDED = TallyChange(
    batch_id=1, type="document", route="route", state=Status.SUCCEEDED, outcome="succeeded"
)
FAILED = replace(SUCCEEDED, state=Status.RETRYING, outcome="SERVER", fingerprint=b"f" * 16)


def written(*changes: TallyChange) -> list[tuple[object, ...]]:
    names = ("state", "outcome", "fingerprint", "delta", "tokens_in", "tokens_out", "cost_micro")
    engine = create_engine("sqlite://")
    tally.create(engine)
    with engine.begin() as connection:
        write(connection, changes)
        query = select(*(tally.c[name] for name in names)).order_by(tally.c.id)
        rows = connection.execute(query).all()
    engine.dispose()
    return [tuple(row) for row in rows]


def test_equal_keys_are_summed() -> None:
    """A page of settles writes one row for each kind of outcome, however many tasks it has."""
    rows = written(
        replace(SUCCEEDED, tokens_in=10, tokens_out=5, cost_micro=300),
        replace(FAILED, tokens_in=1, cost_micro=7),
        replace(SUCCEEDED, tokens_in=20, tokens_out=6, cost_micro=400),
    )

    assert rows == [
        (3, "succeeded", NO_FINGERPRINT, 2, 30, 11, 700),
        (2, "SERVER", b"f" * 16, 1, 1, 0, 7),
    ]


def test_different_errors_are_counted_apart() -> None:
    """Different errors are counted separately: the guard needs the failures by fingerprint."""
    rows = written(FAILED, replace(FAILED, fingerprint=b"g" * 16))

    assert [row[2] for row in rows] == [b"f" * 16, b"g" * 16]


def test_a_long_outcome_is_cut() -> None:
    """A foreign error class is cut to fit its column."""
    (row,) = written(replace(FAILED, outcome="X" * 100))

    assert row[1] == "X" * 64


def test_a_replay_takes_a_cancelled_task_back_from_its_route() -> None:
    """The count has the route and the tenant of the row, and no model."""
    row = SimpleNamespace(batch_id=1, type="document", route="gpu", tenant="acme")

    cancelled, taken_back = counts.cancelled(row), counts.cancelled(row, -1)

    assert taken_back == replace(cancelled, delta=-1)
    assert (cancelled.route, cancelled.model, cancelled.tenant) == ("gpu", "", "acme")

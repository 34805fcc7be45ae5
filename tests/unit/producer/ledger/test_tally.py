"""Changes of a batch's counts become one row for each key."""

from sqlalchemy import create_engine, select

from producer.ledger.tally import NO_FINGERPRINT, TallyChange, TallyKey, write
from schemas.ledger.tables import tally
from schemas.task.states import Status

SUCCEEDED = TallyKey(1, "document", "route", Status.SUCCEEDED, "succeeded")
FAILED = TallyKey(1, "document", "route", Status.RETRYING, "SERVER", b"f" * 16)


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
    """A group of settles writes one row for each kind of outcome, however many tasks it has."""
    rows = written(
        TallyChange(SUCCEEDED, 1, 10, 5, 300),
        TallyChange(FAILED, 1, 1, 0, 7),
        TallyChange(SUCCEEDED, 1, 20, 6, 400),
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
    other = TallyKey(1, "document", "route", Status.RETRYING, "SERVER", b"g" * 16)

    assert [row[2] for row in written(TallyChange(FAILED), TallyChange(other))] == [
        b"f" * 16,
        b"g" * 16,
    ]


def test_a_long_outcome_is_cut() -> None:
    """A foreign error class is cut to fit its column."""
    (row,) = written(TallyChange(TallyKey(1, "document", "", Status.DEAD, "X" * 100)))

    assert row[1] == "X" * 64

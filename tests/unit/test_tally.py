"""Changes of a batch's counts become one row for each key."""

from sqlalchemy import create_engine, select

from producer.tally import NO_FINGERPRINT, Change, Key, write
from schemas.tables import tally
from schemas.task import Status

SUCCEEDED = Key(1, "document", "route", Status.SUCCEEDED, "succeeded")
FAILED = Key(1, "document", "route", Status.RETRYING, "SERVER", b"f" * 16)


def written(*changes: Change) -> list[tuple[object, ...]]:
    engine = create_engine("sqlite://")
    tally.create(engine)
    with engine.begin() as connection:
        write(connection, changes)
        rows = connection.execute(select(tally).order_by(tally.c.id)).all()
    engine.dispose()
    return [(row.state, row.outcome, row.fingerprint, row.delta, row.tokens_in, row.tokens_out, row.cost_micro) for row in rows]


def test_equal_keys_are_summed() -> None:
    """A group of settles writes one row for each kind of outcome, however many tasks it has."""
    rows = written(Change(SUCCEEDED, 1, 10, 5, 300), Change(FAILED, 1, 1, 0, 7), Change(SUCCEEDED, 1, 20, 6, 400))

    assert rows == [(3, "succeeded", NO_FINGERPRINT, 2, 30, 11, 700), (2, "SERVER", b"f" * 16, 1, 1, 0, 7)]


def test_no_change_is_no_row() -> None:
    """An empty group writes no row."""
    assert written() == []


def test_different_errors_are_counted_apart() -> None:
    """Different errors are counted separately: the guard needs the failures by fingerprint."""
    other = Key(1, "document", "route", Status.RETRYING, "SERVER", b"g" * 16)

    assert [row[2] for row in written(Change(FAILED), Change(other))] == [b"f" * 16, b"g" * 16]


def test_a_long_outcome_is_cut() -> None:
    """A foreign error class is cut to fit its column."""
    (row,) = written(Change(Key(1, "document", "", Status.DEAD, "X" * 100)))

    assert row[1] == "X" * 64

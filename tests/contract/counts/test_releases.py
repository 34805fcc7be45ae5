"""Attempts are counted by release: once each, whoever compacts, and outages blame nobody."""

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta

import pytest
from sqlalchemy import insert, select, update

from docllm.agent.ledger.counts import compaction, release_counts
from docllm.agent.ledger.counts.compaction import CompactionLimits
from docllm.agent.ledger.settlements.settling import settle
from docllm.agent.ports import Settlement
from docllm.agent.ports.outcome import Dead, Failure, Outcome, Spent
from docllm.producer.ledger.status import group_status, releases
from docllm.producer.ledger.status.releases import ReleaseSums
from docllm.producer.text.urgency import Urgency
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.sql import utc_after, utc_minute
from docllm.schemas.ledger.tables import release_count, task_attempt, task_result
from docllm.schemas.task.failures import ErrorClass
from tests.support.ledger_database import (
    GROUP,
    LONGEST,
    RELEASED,
    RETRY,
    SNOOZE,
    SUCCEEDED,
    TOO_LONG,
    LedgerDatabase,
    settlement,
)

EXPIRED = Dead(Failure(ErrorClass.EXPIRED, "too late"), Spent())
LIMITS = CompactionLimits()


def settled(
    ledger_db: LedgerDatabase, outcomes: Sequence[Outcome], release: str
) -> list[Settlement]:
    """Let an agent of a release settle new tasks with these outcomes."""
    lease = ledger_db.agent(release)
    owner = lease.next_owner()
    keys = [f"{lease.agent_id}-{number}" for number in range(len(outcomes))]
    rows = [ledger_db.claimed(task_id, owner) for task_id in ledger_db.load(*keys)]
    settlements = [
        settlement(row, owner, outcome) for row, outcome in zip(rows, outcomes, strict=True)
    ]
    write(ledger_db, settlements, release)
    return settlements


def write(ledger_db: LedgerDatabase, settlements: Sequence[Settlement], release: str) -> None:
    ledger_db.call(
        settle,
        group=GROUP,
        settlements=settlements,
        now_utc_s=1.7e9,
        longest_tier=LONGEST,
        release=release,
    )


def totals(ledger_db: LedgerDatabase) -> dict[str, tuple[ReleaseSums, ReleaseSums]]:
    """Return the sums of the last hour and of all time, by release."""
    rows = ledger_db.call(releases.read_releases, GROUP)
    return {row.name: (row.lately, row.total) for row in rows}


def later(ledger_db: LedgerDatabase, seconds: float) -> None:
    """Let so much time pass for what agents have counted."""
    old = update(release_count).where(release_count.c.agent_id > 0)
    moved = old.values(starts_at=utc_after(-seconds), last_at=utc_after(-seconds))
    ledger_db.run(lambda c: c.execute(moved))


def test_an_attempt_counts_once_for_its_release(ledger_db: LedgerDatabase) -> None:
    """A snooze, a release, and a death without an attempt count for none; nor does an echo."""
    outcomes: list[Outcome] = [SUCCEEDED, SUCCEEDED, RETRY, TOO_LONG, SNOOZE, RELEASED, EXPIRED]

    settlements = settled(ledger_db, outcomes, "1.0")
    write(ledger_db, settlements, "1.0")
    settled(ledger_db, [RETRY], "2.0")
    settled(ledger_db, [SUCCEEDED], "")  # an agent of an older version

    cost = SUCCEEDED.spent.cost_micro
    expected = {"1.0": ReleaseSums(2, 2, 4 * cost), "2.0": ReleaseSums(0, 1, cost)}
    assert totals(ledger_db) == {name: (sums, sums) for name, sums in expected.items()}
    assert sorted(row.release_name for row in ledger_db.rows(task_result)) == ["", "1.0", "1.0"]
    attempts = [row.release_name for row in ledger_db.rows(task_attempt)]
    assert (attempts.count("1.0"), attempts.count("2.0")) == (4, 1)
    assert ledger_db.call(releases.read_releases, "another group") == ()


def test_compaction_keeps_the_sums(ledger_db: LedgerDatabase) -> None:
    """Minutes of many agents become one row for each release; sums never change."""
    for release in ("1.0", "1.0", "2.0"):
        settled(ledger_db, [SUCCEEDED, RETRY], release)
    later(ledger_db, 600)
    before = totals(ledger_db)
    settled(ledger_db, [SUCCEEDED], "1.0")
    with_new = totals(ledger_db)

    ledger_db.call(compaction.compact, LIMITS)

    assert totals(ledger_db) == with_new != before
    rows = ledger_db.rows(release_count)
    assert sorted((row.agent_id > 0, row.release_name) for row in rows) == [
        (False, "1.0"),
        (False, "1.0"),
        (False, "2.0"),
        (False, "2.0"),
        (True, "1.0"),
    ]
    ledger_db.call(compaction.compact, LIMITS)
    assert ledger_db.rows(release_count) == rows


def test_old_minutes_are_forgotten_and_their_sums_are_not(ledger_db: LedgerDatabase) -> None:
    """After two hours only the sum is left; the last hour is then empty."""
    settled(ledger_db, [SUCCEEDED, RETRY], "1.0")
    (lately, total) = totals(ledger_db)["1.0"]
    later(ledger_db, release_counts.KEPT_S + 60)

    ledger_db.call(compaction.compact, LIMITS)

    assert lately == total == ReleaseSums(1, 1, 2 * SUCCEEDED.spent.cost_micro)
    assert totals(ledger_db) == {"1.0": (ReleaseSums(), total)}
    assert len(ledger_db.rows(release_count)) == 1


@pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)
def test_a_settle_that_was_frozen_is_not_lost(ledger_db: LedgerDatabase) -> None:
    """The row is locked, so compaction leaves it, with the new count, to its next round."""
    settled(ledger_db, [SUCCEEDED], "1.0")
    later(ledger_db, 600)
    more = update(release_count).values(succeeded=release_count.c.succeeded + 1)
    with (
        closing(Database(ledger_db.database.engine.url.render_as_string())) as other,
        other.engine.connect() as frozen,
    ):
        frozen.execute(more)
        assert ledger_db.run(release_counts.roll_up) == 0
        frozen.commit()

    assert ledger_db.run(release_counts.roll_up) == 1
    assert totals(ledger_db)["1.0"][1].succeeded == 2


def test_those_that_worked_last_are_shown(ledger_db: LedgerDatabase) -> None:
    """However many labels strangers invent, few are read."""
    for number in range(releases.MAX_SHOWN + 3):
        later(ledger_db, 60 * (20 - number))
        settled(ledger_db, [SUCCEEDED], f"release {number}")

    names = [row.name for row in ledger_db.call(releases.read_releases, GROUP)]

    assert len(names) == releases.MAX_SHOWN
    assert names[0] == f"release {releases.MAX_SHOWN + 2}"


def test_the_minute_is_the_databases(ledger_db: LedgerDatabase) -> None:
    """The minute begins at most a minute ago, and has no seconds."""
    settled(ledger_db, [SUCCEEDED], "1.0")

    (row,) = ledger_db.rows(release_count)
    now = ledger_db.run(lambda c: c.execute(select(utc_minute())).scalar())

    assert (row.starts_at.second, row.starts_at.microsecond) == (0, 0)
    assert row.last_at == row.starts_at
    assert timedelta() <= _moment(now) - row.starts_at <= timedelta(minutes=1)


def _moment(value: object) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    assert isinstance(moment, datetime)
    return moment


def count(ledger_db: LedgerDatabase, release: str, began: datetime, good: int, bad: int) -> None:
    """Add the row of a release for a minute."""
    row = {"group_name": GROUP, "agent_id": 0, "release_name": release, "route": "route"}
    row |= {"starts_at": began, "last_at": began, "succeeded": good, "failed": bad}
    ledger_db.run(lambda c: c.execute(insert(release_count).values(**row)))


def test_a_worse_release_is_a_reason(ledger_db: LedgerDatabase) -> None:
    """`status` names it, with both rates; the others are named for nothing."""
    moment = ledger_db.run(lambda c: c.execute(select(utc_minute())).scalar())
    for minute in range(1, 21):
        for release, bad in (("1.0", 2), ("2.0", 20)):
            began = _moment(moment) - timedelta(minutes=minute)
            count(ledger_db, release=release, began=began, good=100 - bad, bad=bad)

    found = ledger_db.call(group_status.read_group, GROUP)

    (reason,) = found.waits
    assert reason.urgency is Urgency.RELEASE_WORSE
    assert "release 2.0 fails more often" in reason.text
    assert "20.0% against 2.0%" in reason.text
    assert [(row["name"], row["compared"]["worse"]) for row in found.as_json()["releases"]] == [
        ("1.0", False),
        ("2.0", True),
    ]

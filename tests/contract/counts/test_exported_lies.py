"""The judge of exported metrics catches lies of the real sums, and is content without them.

Tasks live through settles, losses, cancels, replays and compaction. Meanwhile the metrics are
scraped as Prometheus reads them.
"""

from collections.abc import Callable
from itertools import count

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector
from sqlalchemy import select, text

from docllm.agent.ledger.counts import compaction
from docllm.agent.ledger.counts.compaction import CompactionLimits
from docllm.producer.ledger import tally
from docllm.producer.ledger.status import snapshot
from docllm.producer.metrics.families import Reading, families
from docllm.producer.metrics.family import RouteLabels
from docllm.producer.metrics.scale import Scale, ScaleBound
from docllm.schemas.ledger import tables
from tests.contract.counts.random_lives import Lives
from tests.faults import exported
from tests.faults.exported import Series
from tests.faults.scrapes import samples
from tests.support.ledger_database import GROUP, LedgerDatabase, only_sqlite

ROUTES = RouteLabels(["east"])
AT_ONCE = CompactionLimits(after_s=0.0, page=7, groups=5)
STEPS = 80


class Page(Collector):
    """The metrics of one reading, each as a fresh exporter would show it."""

    def __init__(self, ledger_db: LedgerDatabase) -> None:
        self._found = ledger_db.call(snapshot.read_snapshot, GROUP, ROUTES.label)

    def collect(self):  # type: ignore[no-untyped-def] # noqa: ANN201 - the library's
        """Yield the metrics."""
        reading = Reading(self._found, 1000.0, 0.1)
        return families(
            reading,
            ROUTES,
            Scale(desired=1, because=ScaleBound.NEED, need=1, quota=None, partitions=None),
        )

    def text(self) -> str:
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry).decode()


def lies(ledger_db: LedgerDatabase, seed: int) -> list[str]:
    """Return what the judge finds in the metrics of one walk."""
    lives, series, clock = Lives(ledger_db, seed), Series(), count()
    for step in range(STEPS):
        lives.step()
        if step % 10 == 9:
            ledger_db.call(compaction.compact, AT_ONCE)
        if step % 5 == 0:
            series.add(next(clock), samples(Page(ledger_db).text(), counted=True))
    rows = exported.rows(
        lambda sql: ledger_db.run(lambda c: [tuple(row) for row in c.execute(text(sql))])
    )
    last = samples(Page(ledger_db).text())
    return [*exported.fallen({"exporter": series}), *exported.unequal(last, rows)]


@only_sqlite
def test_the_metrics_tell_no_lies(ledger_db: LedgerDatabase) -> None:
    """The counters never fall, and equal the rows at the end."""
    assert lies(ledger_db, 1) == []


def falls_at_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count what is in a state, not what entered it."""
    wrong = {**tally._RAW_COUNTS, "entered": tables.tally.c.delta}
    monkeypatch.setattr(tally, "_RAW_COUNTS", wrong)


def forgets_what_was_rolled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the tally alone, as if there were no roll-up."""

    def tail(where: tally.Where) -> object:
        raw = tally._RAW_COUNTS
        columns = [raw[column.name].label(column.name) for column in tables.tally_sum.c]
        return select(*columns).where(*where(raw)).subquery()

    monkeypatch.setattr(tally, "counts", tail)


def forgets_entries_when_it_rolls_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the present numbers right in the roll-up, and lose what happened before."""
    whole = compaction._count
    monkeypatch.setattr(compaction, "_count", lambda row: whole(row) | {"entered": row.delta // 2})


def forgets_tokens_when_it_rolls_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the tokens of what is rolled up."""
    whole = compaction._count
    monkeypatch.setattr(compaction, "_count", lambda row: whole(row) | {"tokens_in": 0})


@only_sqlite
@pytest.mark.parametrize(
    "bug",
    [
        falls_at_replays,
        forgets_what_was_rolled_up,
        forgets_entries_when_it_rolls_up,
        forgets_tokens_when_it_rolls_up,
    ],
)
def test_a_planted_lie_is_caught(
    ledger_db: LedgerDatabase,
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[pytest.MonkeyPatch], None],
) -> None:
    """A judge that has never found anything proves nothing."""
    bug(monkeypatch)
    assert lies(ledger_db, 1)

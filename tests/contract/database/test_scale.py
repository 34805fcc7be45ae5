"""What agents and screens do reads as many rows in a ledger 25 times as large.

The larger ledger has 25 times as many finished tasks and dead letters, but as many batches,
errors, waiting tasks and recent deaths. `python -m bench rows` measures the same on millions.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from bench import rows
from bench.filling import BATCHES, CAPPED, LATE, Size, fill
from bench.questions import questions
from bench.reads import Work, reads
from docllm.producer.ledger.dead_letters import error_groups
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.replay_progress import ReplayRequest
from docllm.producer.replay import plan, runs
from docllm.producer.replay.runs import Cursor
from docllm.schemas.ledger import migrations, tables
from docllm.schemas.ledger.database import Connection, Database
from tests.support.ledger_database import GROUP, KINDS, driven

SMALL, LARGE = Size(2_000, dead_every=2), Size(50_000, dead_every=2)
PAGE = 500  # items of a replay that are stored at once; the small ledger has some pages
SLACK = 10  # rows: a longer way down an index is no growth


class UndoneError(Exception):
    """Ends a transaction that only measured."""


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
    else:
        server = request.getfixturevalue(f"{request.param}_server")
        url = driven(server.create_database("scale"))
    database = Database(url, timeout_s=120)
    migrations.migrate(database)
    yield database
    database.close()


def cost(database: Database, work: Work) -> int:
    """Return how many rows a piece of work reads, and undo it."""
    costs = []

    def measure(connection: Connection) -> None:
        costs.append(reads(connection, work))
        raise UndoneError

    with pytest.raises(UndoneError):
        database.run(measure)
    return costs[0]


def measured(database: Database, size: Size) -> dict[str, int]:
    """Fill the ledger and return what each piece of work costs."""
    fill(database, size)
    return {name: cost(database, work) for name, work in questions(size.tasks).items()}


def stored(connection: Connection) -> int:
    """Store a replay of all dead letters; return how many."""
    request = ReplayRequest(Selection())
    run_id = runs.begin(connection, GROUP, "ann", request)
    place: Cursor | None = Cursor()
    while place is not None:
        place = runs.store(connection, group=GROUP, run_id=run_id, request=request, start=place)
    count = select(func.count()).select_from(tables.replay_item)
    return connection.execute(count).scalar_one()


def test_costs_do_not_grow_with_the_ledger(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every piece of work costs the same within a tenth; so does a page of one batch's replay."""
    monkeypatch.setattr(runs, "STORED_PAGE", PAGE)
    small = measured(database, SMALL)
    large = measured(database, LARGE)

    grown = {
        name: (small[name], large[name])
        for name in small
        if large[name] > 1.1 * small[name] + SLACK
    }
    assert grown == {}

    request = ReplayRequest(Selection(batch=f"b{BATCHES}"))

    def store(connection: Connection) -> None:
        run_id = runs.begin(connection, GROUP, "ann", request)
        runs.store(connection, group=GROUP, run_id=run_id, request=request, start=Cursor())

    assert cost(database, store) <= 1.1 * large["replay: store a page"]


def test_the_roll_ups_count_what_a_replay_stores(database: Database) -> None:
    """The plan reads roll-ups and leaves what is capped or in a cancelled batch."""
    fill(database, SMALL)

    listed = database.run(lambda c: error_groups.listed(c, GROUP, Selection()))
    planned = database.run(lambda c: plan.plan(c, GROUP, ReplayRequest(Selection())))

    assert sum(group.count for group in listed) == SMALL.dead
    assert (planned.capped, planned.late) == (CAPPED, LATE)
    assert planned.closed == SMALL.dead // BATCHES
    assert planned.tasks == database.run(stored) == SMALL.dead - planned.capped - planned.closed


def test_the_table_of_the_bench_has_the_smaller_ledger_beside_the_larger() -> None:
    """The ratio is that of the rows read."""
    table = rows.table({"status": rows.Cost(12.34, 3000)}, {"status": rows.Cost(1.0, 1000)})

    assert table.splitlines()[1].split() == ["status", "12.3", "3,000", "1,000", "3.00"]

"""How fast `docllm load` loads, and in what memory.

The time runs from the making of the batch to the end of its input, as recorded in the ledger.
"""

from collections.abc import Iterator

from sqlalchemy import Connection, select

from bench.site import Site, Sites
from bench.table import Figure
from bench.tasks import write_tasks
from docllm.schemas.ledger.tables import batch

MEMORY_GOAL_MB = 200.0
# Name, bytes a line, lines, lines on embedded parts, tasks a second to reach.
SIZES = (
    ("300 bytes", 300, 1_000_000, 30_000, 22_000.0),
    ("2.3 KB", 2300, 150_000, 20_000, 13_000.0),
)


def measure(sites: Sites, *, quick: bool) -> Iterator[Figure]:
    """Load a file of each size, on each kind of parts."""
    for name, line_bytes, full, few, goal in SIZES:
        for site in sites.both():
            count = (few if site.embedded else full) // (20 if quick else 1)
            yield from _load(site, f"load of {count:,} tasks of {name}", count, line_bytes, goal)


def _load(site: Site, what: str, count: int, line_bytes: int, goal: float) -> Iterator[Figure]:
    path = write_tasks(site.folder / "tasks.jsonl", count, line_bytes)
    used = site.load(path)
    path.unlink()
    goals = (None, None) if site.embedded else (goal, MEMORY_GOAL_MB)
    yield Figure(
        f"{what}: rate", site.parts, count / site.ask(_took_s), "1/s", goals[0], at_least=True
    )
    yield Figure(f"{what}: memory", site.parts, used.memory_mb, "MB", goals[1])


def _took_s(connection: Connection) -> float:
    row = connection.execute(select(batch.c.created_at, batch.c.closed_at)).one()
    return float((row.closed_at - row.created_at).total_seconds())

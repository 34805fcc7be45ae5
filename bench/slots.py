"""How well 1,000 slots are used when every call takes a second, and in what memory."""

from collections.abc import Iterator

import orjson

from bench.site import Site, Sites, llm
from bench.table import Figure
from bench.tasks import answer_of_1_kb, write_tasks

SLOTS, CALL_S = 1000, 1
USE_GOAL, MEMORY_GOAL_MB = 97.0, 150.0
LINE_BYTES = 2048


def measure(sites: Sites, *, quick: bool) -> Iterator[Figure]:
    """Run one agent until all is done, on each kind of parts."""
    for site in sites.both():
        full = 10_000 if site.embedded else 30_000
        yield from _slots(site, full // 5 if quick else full)


def _slots(site: Site, count: int) -> Iterator[Figure]:
    log = site.folder / "calls.jsonl"
    site.load(write_tasks(site.folder / "tasks.jsonl", count, LINE_BYTES, **answer_of_1_kb()))
    with llm(site.folder, "--latency", str(CALL_S), "--log", str(log)) as (url, _):
        used = site.agent(url, "--until-done", "--slots", str(SLOTS)).wait(900)
    times = [orjson.loads(line)["boot_s"] for line in log.read_bytes().splitlines()]
    use = 100 * count * CALL_S / (SLOTS * (max(times) - min(times)))
    use_goal, memory_goal = (None, None) if site.embedded else (USE_GOAL, MEMORY_GOAL_MB)
    yield Figure("1,000 slots, calls of 1 s: use", site.parts, use, "%", use_goal, at_least=True)
    yield Figure(
        "1,000 slots, calls of 1 s: agent's memory", site.parts, used.memory_mb, "MB", memory_goal
    )

"""How well 1,000 slots are used when every call takes a second, and in what memory.

The use is counted from the server's log: the seconds that calls were open, in parts of those that
all slots would have had, from the moment when all were taken to the start of the last call.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

from bench.site import Site, Sites, llm
from bench.table import Figure
from bench.tasks import answer_of_1_kb, write_tasks

SLOTS, CALL_S = 1000, 1
USE_GOAL, MEMORY_GOAL_MB = 97.0, 150.0
LINE_BYTES = 2048
Moments = Sequence[tuple[float, int]]  # when a call began (+1) or ended (-1), in order


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
    use = used_percent(moments(log), SLOTS)
    use_goal, memory_goal = (None, None) if site.embedded else (USE_GOAL, MEMORY_GOAL_MB)
    yield Figure("1,000 slots, calls of 1 s: use", site.parts, use, "%", use_goal, at_least=True)
    yield Figure(
        "1,000 slots, calls of 1 s: agent's memory", site.parts, used.memory_mb, "MB", memory_goal
    )


def moments(log: Path) -> Moments:
    """Read the starts and ends of calls from the rehearsal LLM's log."""
    events = map(orjson.loads, log.read_bytes().splitlines())
    return sorted((event["boot_s"], 1 if event["event"] == "start" else -1) for event in events)


def used_percent(changes: Moments, slots: int) -> float:
    """Return how many of the slot-seconds had a call, from when all had one to the last start.

    Slots that were never all taken count from the first start on.
    """
    last_s = max((at_s for at_s, change in changes if change > 0), default=0.0)
    full_s = next((at_s for at_s, taken in _taken(changes) if taken >= slots), changes[0][0])
    used_s, taken, since_s = 0.0, 0, full_s
    for at_s, now_taken in _taken(changes):
        until_s = min(max(at_s, full_s), last_s)
        used_s += taken * (until_s - since_s)
        taken, since_s = now_taken, until_s
    return 100 * used_s / (slots * (last_s - full_s))


def _taken(changes: Moments) -> Iterator[tuple[float, int]]:
    """Yield how many slots are taken from each moment on."""
    taken = 0
    for at_s, change in changes:
        taken += change
        yield at_s, taken

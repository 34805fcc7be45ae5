"""`python -m bench traces`: what traces cost an agent, beside the same agent without them.

Runs on embedded parts alternate: nothing traced, one success in a hundred, and every task.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.site import embedded, llm
from bench.table import Figure
from bench.tasks import answer_of_1_kb, write_tasks
from tests.servers.collector import collecting

LINE_BYTES, SLOTS, TASKS, ROUNDS = 2048, 256, 2_000, 3
OFF, FEW, ALL = "off", "ratio 0.01", "ratio 1"
RATIOS = {OFF: None, FEW: 0.01, ALL: 1.0}


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Yield the CPU of an agent per task with traces, in parts of that without."""
    count, rounds = (300, 1) if quick else (TASKS, ROUNDS)
    cpu_ms: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name, ratio in RATIOS.items():
            cpu_ms[name].append(_agent_ms(folder, count, ratio))
    for name in (FEW, ALL):
        parts = [on / off for on, off in zip(cpu_ms[name], cpu_ms[OFF], strict=True)]
        yield Figure(f"agent with traces, {name}: CPU / without", "embedded", median(parts), "x")
    spread = max(cpu_ms[OFF]) / min(cpu_ms[OFF])
    yield Figure("agent without traces: most CPU / least", "embedded", spread, "x")
    yield Figure("agent without traces: CPU a task", "embedded", median(cpu_ms[OFF]), "ms")


def _agent_ms(folder: Path, count: int, ratio: float | None) -> float:
    """Return the CPU of one run per task, without its start."""
    site = embedded(folder)
    with llm(site.folder, "--latency", "0") as (url, _), collecting() as collector:
        if ratio is not None:
            otel = f'[otel]\nendpoint = "{collector.url}"\nratio = {ratio}\n'
            (site.folder / "docllm.toml").write_text(otel)
        start_up = site.agent(url, "--until-done").wait(120)
        site.load(write_tasks(site.folder / "tasks.jsonl", count, LINE_BYTES, **answer_of_1_kb()))
        used = site.agent(url, "--until-done", "--slots", str(SLOTS)).wait(900)
    return 1000 * (used.cpu_s - start_up.cpu_s) / count

"""What programs load before their first work: nothing that only others need."""

import subprocess
import sys

import pytest

# Slow to load, each with what it is for.
HEAVY = {
    "alembic": "a schema to migrate",
    "http.client": "proxies in the environment",
    "http.server": "[agent] http",
    "jsonschema_rs": "a schema of an answer",
    "multiprocessing": "a call on a child process",
    "opentelemetry": "[otel]",
    "prometheus_client": "[agent] http",
    "pyarrow": "an archive",
    "pybreaker": "a stopped route",
    "redis": "[redis]",
    "rich.console": "a terminal",
    "sqlalchemy.dialects.mysql": "a ledger on a server",
    "tomllib": "docllm.toml",
    "docllm.agent.llm.rehearsal": "--rehearsal",
    "docllm.agent.maintenance.cleanup.retainer": "[retention]",
    "docllm.agent.process.supervisor": "--processes",
    "docllm.producer.retention": "[retention]",
}
OF_STATUS = {
    "docllm.producer.bus.topic_family": "a bus",
    "docllm.producer.input": "load",
    "docllm.producer.publishing": "a bus",
    "docllm.producer.replay": "replay",
    "docllm.schemas.task.result.answer": "export",
}
PROGRAMS = {
    "docllm.agent.cli.main": {**HEAVY, "docllm.producer.screen.group_status": "status"},
    "docllm.producer.cli.status": {**HEAVY, **OF_STATUS},
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_loads_nothing_that_only_others_need(program: str) -> None:
    """The modules of a starting agent and of `status`, in a new interpreter."""
    heavy = PROGRAMS[program]
    script = f"import sys, {program}; print(*sorted(sys.modules))"

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    loaded = set(run.stdout.split())
    assert {name: use for name, use in heavy.items() if name in loaded} == {}

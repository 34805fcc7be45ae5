"""An agent that a bug ends during calls exits with its code; nothing aborts the interpreter."""

import pytest

from docllm.schemas.errors import DocllmError
from tests.integration.support import programs
from tests.integration.support.deployment import Deployment

# The parts of an agent as they are, but for a bug that shows while calls are in flight.
WITH_A_BUG = """
import sys
from docllm.agent.cli.parser import main
from docllm.agent.execution.admission import Admission

room = Admission.room

def buggy(admission):
    if admission._busy.total() >= 4:
        raise RuntimeError("a bug of ours")
    return room(admission)

Admission.room = buggy
sys.exit(main(sys.argv[1:]))
"""


def test_a_bug_with_calls_under_way_ends_with_its_exit_code(
    embedded: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An HTTP client that was left open once aborted the interpreter (SIGABRT) at its end.

    So the agent is a new program, whose interpreter destroys its modules.
    """
    monkeypatch.setattr(programs, "FORKS", False)
    llm = embedded.llm("--latency", "60")
    embedded.load(20)
    (embedded.folder / "docllm.toml").write_text("[agent]\ndrain_timeout_s = 2\n")
    (embedded.folder / "with_a_bug.py").write_text(WITH_A_BUG)

    agent = embedded.start("with_a_bug", "--slots", "8")

    assert agent.wait() == DocllmError.exit_code, agent.tail()
    assert "a bug of ours" in agent.err
    assert len(llm.calls()) >= 4

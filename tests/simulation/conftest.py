"""Says which seeds a run of the tests took, so that it can be repeated."""

import pytest

from tests.simulation.seeds import FIRST, NUMBER


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ran = any(
        "test_simulation" in report.nodeid for report in terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", [])
    )
    if ran:
        terminalreporter.write_line(f"simulated seeds {FIRST} to {FIRST + NUMBER - 1}; again with DOCLLM_TEST_FIRST_SEED={FIRST}")

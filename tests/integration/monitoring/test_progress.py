"""What a person sees of running agents: on a terminal a bar, in a pipe a line now and then."""

import os
import pty
import re
import sys
from contextlib import suppress

import pytest

from tests.integration.support.deployment import Deployment
from tests.integration.support.installations import repeated_on_embedded
from tests.servers.process import free_port

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ ")
BAR = re.compile(r"tasks ━+ ([\d,]+) of ([\d,]+)")


def on_terminal(deployment: Deployment, *arguments: str) -> tuple[int, str]:
    """Run a program on a terminal of its own; return its exit code and what it showed."""
    environ = {**deployment.environ, "TERM": "xterm", "COLUMNS": "120"}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(deployment.folder)
        os.execve(  # noqa: S606 - the program under test
            sys.executable, [sys.executable, "-m", "docllm", *arguments], environ
        )
    shown = b""
    with suppress(OSError):  # Linux says that its end is closed
        while part := os.read(terminal, 1 << 16):
            shown += part
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode("utf-8", "replace")


def rows(shown: str) -> list[str]:
    """Return what stood on each row, one entry for each time that it was written anew."""
    return [
        ESCAPES.sub("", part).strip()
        for line in shown.replace("\r\n", "\n").split("\n")
        for part in re.split(r"\x1b\[2K|\x1b\[1A", line)
    ]


@pytest.mark.parametrize("processes", [1, 2])
@repeated_on_embedded
def test_a_bar_shows_this_run_and_no_log_line_tears_it(
    deployment: Deployment, processes: int
) -> None:
    """The bar begins at 0 of this run's tasks, whatever was done before; one end is told."""
    deployment.use_tiers("1s", "2s")
    deployment.llm("--latency", "0.02")
    deployment.load(30, batch="before")
    deployment.until_done()
    llm = deployment.llm("--latency", "0.3", "--faults", "400=0.05,500=0.05")
    deployment.load(300)
    several = ["--processes", "2"] if processes > 1 else []

    code, shown = on_terminal(
        deployment,
        "agent",
        "--group",
        deployment.group,
        "--until-done",
        "--fail-on-dead",
        "--slots",
        "8",
        *several,
    )

    written = rows(shown)
    bars = [match for row in written if (match := BAR.search(row))]
    logs = [row for row in written if LOG_LINE.search(row)]
    assert code == 1, shown
    assert {match[2] for match in bars} == {"300"}
    assert int(bars[0][1]) < 100
    assert [row for row in logs if not LOG_LINE.match(row) or "━" in row] == []
    assert [row for row in written if "━" in row and not row.startswith("tasks ")] == []
    (end,) = (row for row in logs if " done: " in row)
    assert re.search(r"done: 300 tasks in .* succeeded, \d+ dead, .* tried again", end)
    assert "no price set for model rehearsal" in end
    (dead,) = (row for row in logs if "dead with BAD_REQUEST" in row)
    assert f"docllm dead list --group {deployment.group}" in dead
    assert "draining" not in shown
    assert llm.running


def test_a_pipe_gets_lines_and_the_reason_of_a_stop(deployment: Deployment) -> None:
    """A provider that is away is named at once, with route, address and model."""
    address = f"http://127.0.0.1:{free_port()}/v1"
    deployment.environ |= {"DOCLLM_LLM_BASE_URL": address, "DOCLLM_LLM_MODEL": "some-model"}
    deployment.load(60)

    parent = deployment.agent("--until-done", "--processes", "2")

    target = f"route default (some-model at {address})"
    deployment.until(lambda: target in parent.err, "the route that waits")
    deployment.until(lambda: "0 of 60 tasks done" in parent.err, "a line of progress")
    deployment.until(lambda: "nothing has moved for " in parent.err, "the reason")
    (reason,) = re.findall(r"nothing has moved for \d+ s: (.*)", parent.err)[:1]
    assert target in reason or "wait for another attempt" in reason, reason
    parent.end()

"""`status` as a person sees it: on a terminal, without colours, in a pipe, and after a kill."""

import re
from functools import partial

import pytest

from tests.integration.monitoring.terminals import on_terminal
from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.installations import repeated_on_embedded

RED, GREEN, YELLOW = "31", "32", "33"
BLOCKS = re.compile("[\u2581-\u2588]")
HOSTILE = "[red]x[/red]"


def ended_with_failures(deployment: Deployment) -> None:
    """Run a batch of eight tasks that succeed and two that are dead, whose name is like markup."""
    good = deployment.llm("--latency", "0.01")
    bad = deployment.llm("--latency", "0", "--faults", "400=1")
    (deployment.folder / "docllm.toml").write_text(
        f'[llm]\nbase_url = "{good.url}"\nmodel = "rehearsal"\n'
        f'[routes.bad]\nbase_url = "{bad.url}"\n'
    )
    del deployment.environ["DOCLLM_LLM_BASE_URL"]
    lines = [task_line(number, **({"model": "bad"} if number < 2 else {})) for number in range(10)]
    path = deployment.write_lines(lines, "mixed")
    deployment.producer("load", str(path), "--batch", HOSTILE)
    deployment.until_done()


def test_a_terminal_shows_colours_and_a_sparkline(embedded: Deployment) -> None:
    """Success is green and what died is red; NO_COLOR and a pipe have no colour, the same words."""
    ended_with_failures(embedded)

    screen = on_terminal(embedded, "producer", "status")
    assert screen.code == 0
    assert "8" in screen.coloured(GREEN)
    assert "2 dead BAD_REQUEST" in screen.coloured(RED)
    assert BLOCKS.search(screen.text)
    assert HOSTILE in screen.text
    assert max(map(len, screen.last)) <= 80

    plain = on_terminal(embedded, "producer", "status", "--once", NO_COLOR="1")
    assert plain.colours == set()
    assert f"2 dead BAD_REQUEST  ({HOSTILE})" in plain.text

    dumb = on_terminal(embedded, "producer", "status", TERM="dumb")
    assert "\x1b" not in dumb.raw
    assert f"2 dead BAD_REQUEST  ({HOSTILE})" in dumb.text

    piped = embedded.run("producer", "status", "--group", embedded.group, FORCE_COLOR="1")
    assert "\x1b" not in piped.out
    assert f"2 dead BAD_REQUEST  ({HOSTILE})" in piped.out

    (batch,) = embedded.status()["batches"]
    assert sum(batch["per_minute"]) == 10
    assert len(batch["per_minute"]) == 10


def test_lists_of_trouble_are_coloured_too(embedded: Deployment) -> None:
    """`dead list` and `guard list` mark in red what `status` does, in the same words elsewhere."""
    embedded.llm("--latency", "0", "--faults", "400=1")
    embedded.load(40)
    embedded.agent("--slots", "2")
    embedded.until(lambda: embedded.status()["guards"], "a guard")
    key = "batch tasks, type document, route default"

    guards = on_terminal(embedded, "producer", "guard", "list")
    dead = on_terminal(embedded, "producer", "dead", "list", columns=80)

    assert key in guards.coloured(RED)
    assert re.search(r"\d+", dead.coloured(RED))
    assert "BAD_REQUEST" in dead.text
    assert max(map(len, dead.text.splitlines())) <= 80
    for command in ("guard", "dead"):
        plain = on_terminal(embedded, "producer", command, "list", NO_COLOR="1")
        assert plain.colours == set()
        assert "\x1b" not in embedded.producer(command, "list")
    assert key in embedded.producer("guard", "list")


def test_an_output_in_ascii_has_a_sparkline_in_ascii(embedded: Deployment) -> None:
    """An old locale cannot show blocks; the screen is whole all the same."""
    ended_with_failures(embedded)

    piped = embedded.run("producer", "status", "--group", embedded.group, PYTHONIOENCODING="ascii")

    assert (piped.code, piped.out.isascii()) == (0, True), piped.err
    head, row = piped.out.splitlines()[1:3]
    assert head.endswith("10 min")
    assert re.search(r" [.:=+*#%@-]{10}$", row), row


def test_a_live_screen_draws_over_its_lines(embedded: Deployment) -> None:
    """The screen never clears the terminal, so nothing flickers, and ends when all is final."""
    embedded.llm("--latency", "0.5-1")
    embedded.load(12)
    agent = embedded.agent("--until-done", "--slots", "2")

    screen = on_terminal(embedded, "producer", "status")

    assert agent.wait() == 0, agent.tail()
    assert screen.code == 0
    assert "\x1b[2J" not in screen.raw
    assert screen.raw.count("group docllm") >= 2
    assert screen.raw.count("\x1b[?25l") == 1  # the cursor is hidden once, and shown at the end
    assert screen.raw.rstrip().endswith("\x1b[?25h")
    assert max(map(len, screen.last)) <= 80
    assert re.search(r"\btasks +12 +12\b", "\n".join(screen.last)), screen.last


@repeated_on_embedded
def test_a_killed_agent_is_a_reason_until_its_tasks_run_again(deployment: Deployment) -> None:
    """The survivor takes its tasks, and nothing alarms anybody; without agents the first line does.

    The killed agent stays in the list, with words that say that nothing waits for it.
    """
    deployment.llm("--latency", "600")
    deployment.load(60)  # enough for the partitions of both
    victim, survivor = (deployment.agent("--slots", "4") for _ in range(2))
    for agent in (victim, survivor):
        deployment.until(partial(deployment.ledger.claims_of, agent.pid), f"{agent.name} to work")
    deployment.until(lambda: deployment.kill(victim), "the kill")

    def lost() -> list[bool]:
        agents = deployment.status()["agents"]
        return [agent["holds_tasks"] for agent in agents if agent["state"] == "lost"]

    deployment.until(lambda: lost() == [False], "the tasks of the killed agent to be reset")

    assert not [reason for reason in deployment.status()["reasons"] if "lost" in reason]
    text = deployment.producer("status")
    assert re.search(
        r"^agent .*: lost, its tasks were reset, seen \d+ s ago$", text, re.MULTILINE
    ), text
    assert not re.search(r"^waiting: agent .* lost", text, re.MULTILINE), text

    deployment.until(lambda: deployment.kill(survivor), "the kill of the survivor")
    deployment.until(
        lambda: any("no agent alive" in reason for reason in deployment.status()["reasons"]),
        "status to say that no agent is alive",
    )
    screen = on_terminal(deployment, "producer", "status", "--once")
    assert screen.text.splitlines()[1].startswith("waiting: no agent alive; start one: ")
    assert "waiting: no agent alive" in screen.coloured(RED)


def test_a_crash_suspect_and_the_oldest_call_are_shown(embedded: Deployment) -> None:
    """Two agents die over a task; the third says which task it runs, and over how many agents."""
    embedded.llm("--latency", "600")
    embedded.load(1)
    for _ in range(2):
        agent = embedded.agent()
        embedded.until(partial(embedded.ledger.claims_of, agent.pid), f"{agent.name} to work")
        embedded.until(partial(embedded.kill, agent, spare_suspects=False), "the kill")
    embedded.agent()

    embedded.until(
        lambda: re.search(r"1\d s: task t0", embedded.producer("status")),
        "the oldest call to be named",
    )

    screen = on_terminal(embedded, "producer", "status", "--once")
    suspect = (
        "task t0 of batch tasks runs as the only suspect of its agent: 2 agents were lost over it"
    )
    assert f"waiting: {suspect}" in screen.text.replace("\n", "")
    assert re.search(
        r"alive, seen \d+ s ago, 1 of \d+ slots,\n    oldest call \d+ s: task t0 of batch tasks on "
        "route default",
        screen.text,
    )
    assert "waiting: task t0" in screen.coloured(YELLOW)
    (report,) = [
        agent["report"] for agent in embedded.status()["agents"] if agent["state"] == "alive"
    ]
    (shown,) = report["suspects"]
    assert (shown["key"], shown["batch"], shown["losses"]) == ("t0", "tasks", 2)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits_the_terminal(embedded: Deployment, columns: int) -> None:
    """Sentences wrap; the lines of the table do not."""
    ended_with_failures(embedded)

    lines = on_terminal(embedded, "producer", "status", "--once", columns=columns).text.splitlines()

    table = [line for line in lines if line.startswith(("batch", HOSTILE))]
    assert len(table) == 2
    assert max(map(len, table)) <= columns
    assert table[0].endswith("10 min")

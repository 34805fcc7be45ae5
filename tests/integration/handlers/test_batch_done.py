"""What a person names is called at the end of a batch, whatever happens to the agents."""

import signal
import sys
from collections import Counter

import orjson

from tests.integration.support.deployment import BATCH, Deployment
from tests.integration.support.installations import repeated_on_embedded

MODULE = """
import time
from pathlib import Path

LOG = Path(__file__).with_name("ends.log")


def slow(end):
    with LOG.open("a") as log:
        print(end.batch, end.round, *end.counts.values(), file=log, flush=True)
    while not LOG.with_name("go").exists():
        time.sleep(0.05)
"""
WRITE = """
import sys
end = sys.stdin.read()
sys.stderr.write("the queue is full\\n")
open(sys.argv[1], "a").write(end + "\\n")
sys.exit(int(sys.argv[2]))
"""


def configured(deployment: Deployment, hook: str) -> None:
    (deployment.folder / "ends.py").write_text(MODULE)
    (deployment.folder / "write.py").write_text(WRITE)
    (deployment.folder / "docllm.toml").write_text(f"[hooks]\non_batch_done = {hook}\n")


def command(code: int) -> str:
    return f"""{{ command = "'{sys.executable}' write.py ends.log {code}" }}"""


def noted(deployment: Deployment) -> list[str]:
    log = deployment.folder / "ends.log"
    return log.read_text().splitlines() if log.exists() else []


@repeated_on_embedded
def test_a_killed_agents_end_of_a_batch_is_told_by_another(deployment: Deployment) -> None:
    """The function had begun, so it runs twice, for the same round."""
    deployment.llm("--latency", "0")
    configured(deployment, '"ends:slow"')
    deployment.load(3)
    agent = deployment.agent()
    deployment.until(lambda: noted(deployment), "the end of the batch is told")
    agent.signal(signal.SIGKILL)
    agent.wait()
    (deployment.folder / "go").touch()

    deployment.until_done()

    assert Counter(noted(deployment)) == {f"{BATCH} 1 3 3 0 0": 2}


def test_a_command_gets_each_round_of_a_batch(embedded: Deployment) -> None:
    """A replay lets the batch end again."""
    embedded.llm("--latency", "0")
    configured(embedded, command(0))
    handler = embedded.folder / "works.py"
    handler.write_text(
        "from docllm.agent.handlers import GiveUpError\n"
        "def work(context):\n    raise GiveUpError('not today')\n"
    )
    with (embedded.folder / "docllm.toml").open("a") as file:
        file.write('[types.work]\nhandler = "works:work"\n')
    lines = [{"id": "good", "prompt": "Hi"}, {"id": "bad", "type": "work", "prompt": "Hi"}]
    embedded.producer("load", str(embedded.write_lines(lines)))
    embedded.until_done()
    handler.write_text("def work(context):\n    return 'now'\n")
    embedded.producer("replay", "--batch", BATCH, "--yes")

    embedded.until_done()

    ends = [orjson.loads(line) for line in noted(embedded)]
    assert [(end["round"], end["counts"]["succeeded"], end["counts"]["dead"]) for end in ends] == [
        (1, 1, 1),
        (2, 2, 0),
    ]


def test_a_command_that_fails_is_told_at_the_end(embedded: Deployment) -> None:
    """The agent leaves meanwhile and says so; nothing of the batch has changed."""
    embedded.llm("--latency", "0")
    configured(embedded, command(3))
    embedded.load(1)

    (agent,) = embedded.until_done()

    failure = "its command ended with exit code 3: the queue is full"
    assert f"on_batch_done of batch {BATCH}, round 1, failed: {failure}" in agent.err
    assert f"1 hook on_batch_done not done (batch {BATCH}, round 1: {failure})" in agent.err
    assert len(noted(embedded)) == 1


def test_a_function_that_cannot_be_used_is_refused_at_the_start(embedded: Deployment) -> None:
    """The message names the setting and the form."""
    embedded.llm("--latency", "0")
    configured(embedded, '"ends:missing"')
    embedded.load(1)

    done = embedded.run("agent", "--until-done")

    assert done.code == 2
    assert "hooks.on_batch_done: module ends has no function missing" in done.err

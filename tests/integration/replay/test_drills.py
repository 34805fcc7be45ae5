"""Drills: what a page tells a person to do after a loss is done as it says, and nothing is lost."""

import gzip
import secrets
import signal
from collections import Counter
from pathlib import Path

import orjson
import pytest

from docllm.schemas.task.states import Status
from tests.integration.replay.followed_page import follow
from tests.integration.support import checker
from tests.integration.support.deployment import BATCH, Deployment
from tests.integration.support.ledgers import LedgerView
from tests.servers import DatabaseServer

PAGE = "backup.md"
BEFORE, SINCE = 40, 10  # tasks that were loaded before the backup, and since
# The default slack is for clusters; a test has one broker and needs less.
TOML = "[agent]\nsweep_slack_s = 1\n"


@pytest.fixture
def site(on_kafka: Deployment) -> Deployment:
    """A group on servers that publishes soon what Kafka lost, and fails now and then."""
    (on_kafka.folder / "docllm.toml").write_text(TOML)
    on_kafka.use_tiers("1s", "2s", max_attempts=20)
    on_kafka.llm("--latency", "0.1", "--faults", "500=0.2")
    return on_kafka


def paid(site: Deployment) -> Counter[str]:
    """Return how often each task got an answer; a call of `check` is for no task."""
    calls = (call for llm in site.llms for call in llm.calls())
    return Counter(call.name for call in calls if call.status == 200 and call.name != "-")


def test_a_restored_backup_loses_nothing(site: Deployment) -> None:
    """What was loaded since is loaded again; only what succeeded since is paid for twice."""
    site.load(BEFORE)
    agent = site.agent("--slots", "8")
    site.until_settled(BEFORE // 4)
    follow(site, PAGE, "Back up the ledger")
    site.load(SINCE, "since")
    site.until_settled(BEFORE + SINCE)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0, agent.tail()
    assert set(paid(site).values()) == {1}

    follow(site, PAGE, "Restore a backup")
    kept = {task.name for task in site.ledger.tasks() if task.status == Status.SUCCEEDED}
    left = site.ledger.open()
    site.producer("load", "since.jsonl")
    site.until_done()

    assert len(kept) >= BEFORE // 4
    assert left == BEFORE - len(kept) > 0
    tasks = site.ledger.tasks()
    assert {task.name for task in tasks} == site.loaded
    assert {(task.status, task.results) for task in tasks} == {(Status.SUCCEEDED, 1)}
    assert site.ledger.quarantined() == []
    assert {name: 1 if name in kept else 2 for name in site.loaded} == paid(site)


def test_an_archive_newer_than_the_backup_is_not_paid_again(site: Deployment) -> None:
    """The batch was alive in the backup, or not there; all results are in the archives."""
    to = site.folder / "archives"
    to.mkdir()
    (site.folder / "docllm.toml").write_text(f'{TOML}[retention]\narchive = "{to}"\n')
    site.load(BEFORE, "march")
    agent = site.agent("--slots", "4")
    site.until_settled(BEFORE // 4)
    follow(site, PAGE, "Back up the ledger")
    site.load(SINCE, "april")
    site.until_settled(BEFORE + SINCE)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0, agent.tail()
    for batch in ("march", "april"):
        site.producer("archive", "--batch", batch)
    site.producer("purge", "--batch", "march", "--yes")

    follow(site, PAGE, "Restore a backup")
    left = site.ledger.open()
    follow(site, PAGE, "Close the batches that were archived since the backup")
    site.producer("load", "march.jsonl", code=4)
    site.until_done()
    site.producer("purge", "--batch", "march", "--unarchived", "--yes")

    assert 0 < left < BEFORE
    assert site.ledger.tasks() == []
    assert paid(site) == dict.fromkeys(site.loaded, 1)
    assert {f"{batch}/{key}" for batch in ("march", "april") for key in answered(to, batch)} == (
        site.loaded
    )
    site.producer("export", "--batch", "march", code=4)


def answered(to: Path, batch: str) -> set[str]:
    """Return the ids of the tasks that have an answer in the only archive of a batch."""
    (folder,) = to.glob(f"{batch}-*")
    raw = b"".join(gzip.decompress(file.read_bytes()) for file in folder.glob("*.gz"))
    lines = map(orjson.loads, raw.splitlines())
    return {line["id"] for line in lines if line["status"] == "succeeded" and line["answer"]}


def test_lost_topics_cost_nothing(site: Deployment) -> None:
    """The ledger is ahead of its topics: open tasks are published again, and no call is repeated.

    A dead letter whose topic is gone can be replayed.
    """
    llm = site.llms[0]
    llm.dial("413=1")
    site.load(2, "broken")
    site.until_done()
    llm.dial("500=0.2")
    site.load(BEFORE)
    agent = site.agent("--slots", "8")
    site.until_settled(BEFORE // 4)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0, agent.tail()
    left = site.ledger.open()

    follow(site, PAGE, "Go on without the topics")
    site.producer("replay", "--all", "--yes")
    site.until_done()

    assert left > 0
    assert site.ledger.counts()["succeeded"] == BEFORE + 2
    assert checker.violations(site.evidence()) == []
    assert set(paid(site).values()) == {1}


def test_a_lost_ledger_is_rebuilt(site: Deployment, database_server: DatabaseServer) -> None:
    """Without any backup, dead letters bring back their tasks, and a load brings back the rest."""
    site.llms[0].dial("413=0.3")
    site.load(BEFORE)
    site.until_done()
    dead = site.ledger.counts()["dead"]
    before = {task.name: task.value for task in site.ledger.tasks()}
    url = database_server.create_database(f"n{secrets.token_hex(4)}")
    site.environ["DOCLLM_DATABASE_URL"] = url
    site.ledger = LedgerView(url)
    site.llms[0].dial()

    said = follow(site, PAGE, "Start anew without a backup")
    assert site.ledger.counts()["pending"] == dead > 0
    assert f"{dead} tasks loaded" in said
    site.producer("load", f"{BATCH}.jsonl")
    site.until_done()

    assert {task.name: task.value for task in site.ledger.tasks()} == before
    assert site.ledger.counts()["succeeded"] == BEFORE

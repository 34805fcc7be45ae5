"""Alerts on whole programs: a real Prometheus and Alertmanager see real groups through troubles."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.integration.monitoring.alert_scenes import PAGES, TICKETS, Scene, Stage
from tests.integration.support.installations import embedded_in
from tests.integration.support.programs import until
from tests.servers.alertmanager import Alertmanager, Message, Receiver
from tests.servers.prometheus import Prometheus, faster
from tools import dashboards

DEPLOY = Path(__file__).parents[3] / "deploy/prometheus"
# What a faster minute does not make faster: a lease lasts nine real seconds, so three losses do not
# fit into thirty; and an agent slows down when it is refused, so twenty refusals do not either.
REAL = {
    "docllm_leases_lost_total[30s]": "docllm_leases_lost_total[75s]",
    ") > 20": ") > 2",
}
# SQLite estimates no rows, and no call of these scenes is given up.
EMPTY = {"Rows of the database, all groups", "Calls whose answer was given up, in a second"}


@dataclass(frozen=True, slots=True)
class Watch:
    """The servers that watch."""

    prometheus: Prometheus
    alertmanager: Alertmanager
    receiver: Receiver


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """Yield a Prometheus, for which a minute is a second, and its Alertmanager."""
    folder, receiver = tmp_path_factory.mktemp("watch"), Receiver()
    alertmanager = Alertmanager(
        folder=folder / "alertmanager",
        configuration=(DEPLOY / "alertmanager.yml").read_text(),
        receiver=receiver,
    )
    rules = faster((DEPLOY / "docllm.rules.yml").read_text())
    for fast, real in REAL.items():
        assert fast in rules
        rules = rules.replace(fast, real)
    prometheus = Prometheus(
        folder=folder / "prometheus",
        rules=rules,
        alertmanager=f"127.0.0.1:{alertmanager.port}",
    )
    with alertmanager, prometheus:
        yield Watch(prometheus, alertmanager, receiver)
    receiver.close()


def played(scenes: Sequence[Scene], watch: Watch, folder: Path) -> None:
    """Play scenes at the same time; until all have ended, each raises its alerts and no other.

    No cause ends before its alert was told.
    """
    groups = {scene: embedded_in(folder / scene.name, group=scene.name) for scene in scenes}

    def play(scene: Scene) -> None:
        stage = Stage(groups[scene], watch.prometheus, watch.receiver)
        stage.group.producer("status")  # makes the data folder
        stage.exporter()
        scene.play(stage)

    with ThreadPoolExecutor(len(scenes)) as pool:
        errors = [done.exception() for done in [pool.submit(play, scene) for scene in scenes]]
        faults = [str(error) for error in errors if error]
        fired = {scene: watch.prometheus.fired(scene.name) for scene in scenes}
        faults += [
            f"{scene.name} raised too much or too little: {sorted(fired[scene] ^ scene.raises)}"
            for scene in scenes
            if fired[scene] != scene.raises
        ]
        for group in groups.values():
            group.close()
    assert not faults, "\n\n".join(faults)


def told(watch: Watch, scenes: Sequence[Scene]) -> None:
    """Wait until each alert of the scenes was told to the receiver of its kind, and its end too."""
    rules = yaml.safe_load((DEPLOY / "docllm.rules.yml").read_text())["groups"][0]["rules"]
    receivers = {rule["alert"]: f"{rule['labels']['severity']}s" for rule in rules}
    wanted = {
        Message(receivers[alert], alert, scene.name, burns)
        for scene in scenes
        for alert in scene.raises
        for burns in (True, False)
    }
    messages = watch.receiver.messages
    try:
        until(lambda: wanted <= set(messages), "each alert to be told", 60)
    except AssertionError as error:
        raise AssertionError(f"{error}; missing: {wanted - set(messages)}") from None
    assert all(receivers[message.alert] == message.receiver for message in messages)


def empty(prometheus: Prometheus, since_s: float) -> Iterator[str]:
    """Yield the titles of panels with an expression that no group has had data for."""
    for content in dashboards.made().values():
        for panel in content["panels"]:
            for target in panel["targets"]:
                expression = target["expr"].replace('="$group"', '=~".+"').replace("$route", ".+")
                if not prometheus.has_had(expression.replace("$__rate_interval", "5s"), since_s):
                    yield panel["title"]


def test_each_page_begins_and_ends_with_its_cause(watch: Watch, tmp_path: Path) -> None:
    """Each cause is one page, which ends with it; a group that works raises nothing."""
    began_s = time.time()
    played(PAGES, watch, tmp_path)
    told(watch, PAGES)

    assert set(empty(watch.prometheus, began_s)) <= EMPTY


def test_what_follows_from_a_page_is_no_message_of_its_own(watch: Watch) -> None:
    """While a group has no agent, nobody is told that its inbox is not read; others are."""
    post, messages = watch.alertmanager.post, watch.receiver.messages

    def raised(alert: str, group: str, severity: str) -> dict[str, str]:
        return {"alertname": alert, "group": group, "severity": severity}

    post(raised("DocllmNoAgent", "one", "page"))
    until(lambda: Message("pages", "DocllmNoAgent", "one", burns=True) in messages, "the page", 60)
    post(raised("DocllmInboxUnread", "one", "ticket"), raised("DocllmCostBurn", "one", "ticket"))
    until(lambda: any(it.alert == "DocllmCostBurn" for it in messages), "what does not follow", 60)
    post(raised("DocllmInboxUnread", "two", "ticket"))
    until(lambda: any(it.group == "two" for it in messages), "another group's ticket", 60)

    assert not [it for it in messages if it.alert == "DocllmInboxUnread" and it.group == "one"]


@pytest.mark.proof
def test_each_ticket_begins_and_ends_with_its_cause(watch: Watch, tmp_path: Path) -> None:
    """The same for what can wait; two of the alerts are pages that take long to come."""
    played(TICKETS, watch, tmp_path)
    told(watch, TICKETS)

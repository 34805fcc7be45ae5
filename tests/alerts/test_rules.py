"""The alert rules: their unit tests, the runbook, and the metrics that they name."""

import re
import subprocess
from collections import Counter
from pathlib import Path

import yaml

from docllm.agent.reporting.metrics import AgentMetrics
from docllm.producer.ledger.status.group_status import GroupStatus
from docllm.producer.ledger.status.group_sums import GroupSums
from docllm.producer.ledger.status.snapshot import Snapshot
from docllm.producer.metrics.exporter import Exporter
from docllm.producer.metrics.families import ON_PURPOSE, Reading, families
from docllm.producer.metrics.family import RouteLabels
from docllm.producer.metrics.scale import Scale, ScaleBound, ScaleLimits
from docllm.schemas.codes import Code
from docllm.schemas.settings.config import Config
from tests.faults.plan import KINDS
from tests.integration.monitoring.alert_scenes import PAGES, TICKETS
from tests.servers.alertmanager import PACKAGE as ALERTMANAGER
from tests.servers.process import program
from tests.servers.prometheus import PACKAGE, faster
from tests.support.clock import HandClock

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/docllm.rules.yml"
EXAMPLE = ROOT / "deploy/prometheus/alertmanager.yml"
UNIT_TESTS = Path(__file__).parent / "docllm.test.yml"
PAGE = ROOT / "docs/how-to/alert.md"
RUNBOOK = ROOT / "docs/how-to/runbook.md"
ALERTS = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
NAMES = [alert["alert"] for alert in ALERTS]


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    tool = program("promtool", package=PACKAGE)
    return subprocess.run([tool, *arguments], check=False, capture_output=True, text=True)


def unit_tested(folder: Path, rules: str) -> subprocess.CompletedProcess[str]:
    """Run the unit tests on these rules."""
    (folder / "docllm.rules.yml").write_text(rules)
    tests = folder / "docllm.test.yml"
    tests.write_text(UNIT_TESTS.read_text().replace("RULES", "docllm.rules.yml"))
    return promtool("test", "rules", str(tests))


def test_the_rules_pass_their_unit_tests(tmp_path: Path) -> None:
    """Each alert is raised by its cause and ends with it; a calm group raises none."""
    checked = promtool("check", "rules", str(RULES))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    done = unit_tested(tmp_path, RULES.read_text())
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_tests_notice_each_rule_that_never_fires(tmp_path: Path) -> None:
    """With expressions that are never true, the tests of every alert fail."""
    broken = yaml.safe_load(RULES.read_text())
    for rule in broken["groups"][0]["rules"]:
        rule["expr"] = f"({rule['expr']}) and vector(0) > 1"
    done = unit_tested(tmp_path, yaml.safe_dump(broken))
    assert set(re.findall(r"alertname: (\w+), time: ", done.stdout + done.stderr)) == set(NAMES)


def amtool(*arguments: str) -> str:
    tool = program("amtool", package=ALERTMANAGER)
    done = subprocess.run([tool, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_the_example_for_alertmanager_sends_pages_and_tickets_apart() -> None:
    """The example is valid, and each alert goes to the receiver of its severity."""
    amtool("check-config", str(EXAMPLE))
    for alert in ALERTS:
        severity = alert["labels"]["severity"]
        labels = (f"severity={severity}", f"alertname={alert['alert']}")
        routed = amtool("config", "routes", "test", f"--config.file={EXAMPLE}", *labels)
        assert routed == f"{severity}s"


def test_alertmanager_keeps_back_only_alerts_that_exist() -> None:
    """A rule of the example about an alert of another name would keep nothing back."""
    rules = yaml.safe_load(EXAMPLE.read_text())["inhibit_rules"]
    named = {
        name for rule in rules for name in re.findall(r"Docllm\w+", str(rule)) if name != "Docllm"
    }
    assert named <= set(NAMES)
    assert all(rule["equal"] == ["group"] for rule in rules)


def test_each_alert_has_its_section_in_the_runbook() -> None:
    """An alert has a code, its link leads to the code's section, and that names the alert."""
    sections = dict(re.findall(r"^## (\w+)\n\n(.*)$", RUNBOOK.read_text(), re.MULTILINE))
    assert sections.keys() <= set(Code)
    named = [name for text in sections.values() for name in re.findall(r"`(Docllm\w+)`", text)]
    assert sorted(named) == sorted(NAMES)
    for alert in ALERTS:
        code = alert["annotations"]["code"]
        assert alert["annotations"]["runbook"] == f"docs/how-to/runbook.md#{code}"
        assert f"`{alert['alert']}`" in sections[code]
        assert alert["labels"]["severity"] in {"page", "ticket"}


def exported() -> set[str]:
    """Return the names of all metrics, without the endings of histograms."""
    nothing = Snapshot(
        status=GroupStatus(group="g", ledger="l", agents=(), batches=(), orders=0),
        sums=GroupSums(),
        oldest_due_s={},
        replaying=Counter(),
    )
    one = Scale(desired=1, because=ScaleBound.NEED, need=1, quota=None, partitions=None)
    exporter = Exporter(
        group="g", config=Config(), scale_limits=ScaleLimits(), clock=HandClock(), schema="0"
    )
    of_exporter = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for source in (
            exporter.collect(),
            families(Reading(nothing, 1.0, 1.0), RouteLabels([]), one),
        )
        for family in source
    }
    agent = AgentMetrics(
        group="g",
        routes=[],
        counters=[(name, "Read.", float) for name in ("docllm_leases_lost", "docllm_fenced")],
        gauges=[("docllm_event_loop_lag_seconds", "Read.", float)],
    )
    return of_exporter | set(re.findall(r"^# TYPE (\S+)", agent.text().decode(), re.MULTILINE))


def test_each_metric_of_a_rule_is_exported() -> None:
    """A rule about a metric that nobody exports would never fire."""
    for alert in ALERTS:
        named = set(re.findall(r"\bdocllm_\w+", alert["expr"]))
        assert named <= exported(), (alert["alert"], named - exported())


_ROW = re.compile(r"^\| `(Docllm\w+)` \| (\w+) \|.*\|([^|]*)\|$", re.MULTILINE)


def test_each_alert_has_a_scene_that_raises_it_on_real_programs() -> None:
    """A new alert needs a scene."""
    assert {alert for scene in (*PAGES, *TICKETS) for alert in scene.raises} == set(NAMES)


def test_the_page_about_alerts_lists_each_with_its_severity() -> None:
    """The faults that the page names are kinds of the fault runs."""
    rows = _ROW.findall(PAGE.read_text())
    assert {(name, severity) for name, severity, _ in rows} == {
        (alert["alert"], alert["labels"]["severity"]) for alert in ALERTS
    }
    assert {fault.strip(" `") for _, _, fault in rows if fault.strip()} <= set(KINDS)


def test_rules_exclude_only_reasons_that_exist() -> None:
    """A group that waits on purpose is one metric, with a closed set of reasons."""
    reasons = re.findall(r'reason="(\w+)"', UNIT_TESTS.read_text().split("docllm_route_state")[0])
    assert set(reasons) <= {kind.code for kind in ON_PURPOSE}


def test_rules_can_be_made_faster_for_a_test() -> None:
    """Each minute becomes a second; what is no duration stays."""
    rules = "for: 2m\nincrease(x[1h]) > 3 * 60 and y10m > 60"
    assert faster(rules) == "for: 2s\nincrease(x[60s]) > 3 and y10m > 60"

"""The dashboards for Grafana: made by their script, about metrics that exist, one panel a place.

That each expression returns data is shown in tests/integration/monitoring/test_alerts.py. No
Grafana is asked.
"""

import json
import re
from itertools import combinations
from typing import Any

import pytest
import yaml

from tests.alerts.test_rules import exported
from tools import dashboards
from tools.panels import WIDTH

MADE = dashboards.made()
OF_PROMETHEUS = {"ALERTS", "process_resident_memory_bytes", "process_cpu_seconds_total"}


@pytest.mark.parametrize("name", MADE)
def test_the_committed_files_are_what_the_script_makes(name: str) -> None:
    """If they differ, run `python -m tools.dashboards`."""
    assert json.loads((dashboards.FOLDER / name).read_text()) == MADE[name]


def panels() -> list[Any]:
    return [panel for content in MADE.values() for panel in content["panels"]]


def test_each_metric_of_a_panel_is_exported() -> None:
    """A panel about a metric that nobody exports would stay empty."""
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]
    queries = [
        variable["query"]["query"]
        for content in MADE.values()
        for variable in content["templating"]["list"]
        if variable["type"] == "query"
    ]
    named = set(re.findall(r"\b(?:docllm|process)_\w+|\bALERTS\b", " ".join(expressions + queries)))
    plain = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named}
    assert plain <= exported() | OF_PROMETHEUS


@pytest.mark.parametrize("content", MADE.values(), ids=MADE)
def test_panels_have_names_and_places_of_their_own(content: dict[str, Any]) -> None:
    """No panel covers another or leaves the grid, and each query has its letter."""
    places = [panel["gridPos"] for panel in content["panels"]]
    for place in places:
        assert 0 < place["w"] <= WIDTH - place["x"]
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or apart, (one, other)
    for key in ("id", "title"):
        assert len({panel[key] for panel in content["panels"]}) == len(places)
    for panel in content["panels"]:
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters) > 0


def test_grafana_finds_them_in_one_folder() -> None:
    """The provider's file is the form that Grafana's provisioning reads."""
    (provider,) = yaml.safe_load((dashboards.FOLDER / "dashboards.yml").read_text())["providers"]
    assert provider["type"] == "file"
    assert provider["options"]["path"].startswith("/")

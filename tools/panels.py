"""The forms of panels and dashboards, as Grafana stores them.

Tested by tests/alerts/test_dashboards.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = 39  # of Grafana 11; newer ones read it
WIDTH = 24  # of a dashboard, in columns
SOURCE = {"type": "prometheus", "uid": "${source}"}
# To the other dashboards, with the same group and time.
LINK = {
    "title": "docllm",
    "type": "dashboards",
    "tags": ["docllm"],
    "icon": "external link",
    "tooltip": "",
    "asDropdown": False,
    "includeVars": True,
    "keepTime": True,
    "targetBlank": False,
}
GROUP = 'group="$group"'
ROUTE = f'{GROUP},route=~"$route"'

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: PromQL with the legend of each series, and Grafana's name of their unit."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8

    def as_json(self, number: int, column: int, row: int) -> Json:
        """Return the panel as Grafana stores it, at a place of the grid."""
        is_stack = self.kind == "timeseries" and self.unit == "none"
        custom: Json = {"fillOpacity": 10, "stacking": {"mode": "normal" if is_stack else "none"}}
        return {
            "id": number,
            "title": self.title,
            "type": self.kind,
            "datasource": SOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": column, "y": row},
            "fieldConfig": {
                "defaults": {
                    "unit": self.unit,
                    "min": 0,
                    **({"custom": custom} if self.kind == "timeseries" else {}),
                },
                "overrides": [],
            },
            "targets": [
                {
                    "refId": chr(ord("A") + place),
                    "datasource": SOURCE,
                    "expr": expression,
                    "legendFormat": legend,
                }
                for place, (expression, legend) in enumerate(self.queries)
            ],
        }


def stat(title: str, expression: str, unit: str = "short") -> Panel:
    """Return a panel with one number."""
    return Panel(title, [(expression, "")], unit, kind="stat", width=4, height=4)


def rate(metric: str, by: str, where: str = GROUP) -> str:
    """Return the rate of a counter, by a label."""
    return f"sum by ({by}) (rate({metric}{{{where}}}[$__rate_interval]))"


def quantile(metric: str, share: float, by: str, where: str = GROUP) -> str:
    """Return a quantile of a histogram, by labels."""
    buckets = f"sum by ({by}) (rate({metric}_bucket{{{where}}}[$__rate_interval]))"
    return f"histogram_quantile({share}, {buckets})"


def dashboard(uid: str, title: str, panels: Sequence[Panel], *variables: Json) -> Json:
    """Return a dashboard; panels fill its rows from left to right."""
    placed: list[Json] = []
    column = row = 0
    for number, panel in enumerate(panels, start=1):
        if column + panel.width > WIDTH:
            column, row = 0, row + panels[number - 2].height
        placed.append(panel.as_json(number, column, row))
        column += panel.width
    return {
        "uid": uid,
        "title": title,
        "tags": ["docllm"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_source(), *variables]},
        "annotations": {"list": []},
        "links": [LINK],
        "panels": placed,
    }


def _source() -> Json:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def variable(name: str, query: str, *, many: bool = False) -> Json:
    """Return a choice that is read from the labels of a metric."""
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": many,
        "includeAll": many,
        **({"allValue": ".*"} if many else {}),
    }

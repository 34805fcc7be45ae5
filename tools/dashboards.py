"""Write the dashboards of deploy/grafana: `python -m tools.dashboards`.

With `--check` nothing is written, and the exit code is 1 if a file is stale.

Tested by tests/alerts/test_dashboards.py and tests/integration/monitoring/test_alerts.py.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.panels import GROUP, ROUTE, Json, Panel, dashboard, quantile, rate, stat, variable

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "grafana"
OVERVIEW = (
    stat("Open tasks", f"max(docllm_tasks_open{{{GROUP}}})"),
    stat("Agents alive", f'max(docllm_agents{{{GROUP},state="alive"}})'),
    stat("Tasks a second, now", f"sum(rate(docllm_tasks_ended_total{{{GROUP}}}[5m]))"),
    stat("Dead now", f"max(docllm_dead_letters{{{GROUP}}})"),
    stat("Cost of the last hour", f"sum(increase(docllm_cost_units_total{{{GROUP}}}[1h]))"),
    stat(
        "Age of these figures", f"time() - max(docllm_snapshot_timestamp_seconds{{{GROUP}}})", "s"
    ),
    Panel(
        "Alerts that burn",
        [(f'sum by (alertname) (ALERTS{{{GROUP},alertstate="firing"}})', "{{alertname}}")],
    ),
    Panel("Tasks that end in a second", [(rate("docllm_tasks_ended_total", "state"), "{{state}}")]),
    Panel("Tasks by state", [(f"max by (state) (docllm_tasks{{{GROUP}}})", "{{state}}")], "none"),
    Panel(
        "Attempts that failed in a second, by class",
        [(rate("docllm_attempts_total", "class", f'{GROUP},class!=""'), "{{class}}")],
    ),
    Panel(
        "Tasks that die in a second, by class",
        [(rate("docllm_tasks_dead_total", "class"), "{{class}}")],
    ),
    Panel(
        "Why work waits on purpose",
        [(f"max by (reason) (docllm_group_waiting{{{GROUP}}})", "{{reason}}")],
    ),
    Panel(
        "How long the oldest task has been due",
        [(f"max by (state) (docllm_oldest_due_seconds{{{GROUP}}})", "{{state}}")],
        "s",
    ),
    Panel(
        "Cost in an hour, by what became of the attempt",
        [(f"3600 * {rate('docllm_cost_units_total', 'outcome')}", "{{outcome}}")],
        "none",
    ),
    Panel(
        "Share of the cost that bought no answer",
        [
            (
                (
                    f'sum(rate(docllm_cost_units_total{{{GROUP},outcome!="succeeded"}}[1h]))'
                    f" / sum(rate(docllm_cost_units_total{{{GROUP}}}[1h]))"
                ),
                "waste",
            )
        ],
        "percentunit",
    ),
    Panel("Tokens in a second", [(rate("docllm_tokens_total", "direction"), "{{direction}}")]),
    Panel(
        "Records that are not finished; in retry topics they wait by design",
        [(f"max by (topic) (docllm_topic_lag_records{{{GROUP}}})", "{{topic}}")],
    ),
    Panel(
        "Age of the oldest of these records",
        [(f"max by (topic) (docllm_topic_oldest_seconds{{{GROUP}}})", "{{topic}}")],
        "s",
    ),
    Panel(
        "Agents, and how many the group can use",
        [
            (f"max by (state) (docllm_agents{{{GROUP}}})", "{{state}}"),
            (f"max(docllm_agents_desired{{{GROUP}}})", "can be used"),
        ],
    ),
    Panel(
        "Slots",
        [
            (f"max(docllm_slots{{{GROUP}}})", "all"),
            (f"sum(max by (route) (docllm_slots_busy{{{GROUP}}}))", "in use"),
        ],
    ),
    Panel(
        "Orders to publish, guards, quarantine, replays",
        [
            (f"max(docllm_publish_orders{{{GROUP}}})", "orders"),
            (f"sum(max by (cause) (docllm_guards_raised{{{GROUP}}}))", "guards"),
            (f"max(docllm_quarantined_records{{{GROUP}}})", "quarantined records"),
            (f"sum(max by (state) (docllm_replay_items{{{GROUP}}}))", "items of replays"),
        ],
    ),
    Panel(
        "Rows of the database, all groups",
        [("max by (table) (docllm_rows)", "{{table}}")],
        width=24,
    ),
)

ROUTES = (
    Panel(
        "Attempts in a second, by outcome",
        [(rate("docllm_attempts_total", "route, outcome", ROUTE), "{{route}} {{outcome}}")],
    ),
    Panel(
        "Share of the attempts that the provider refused",
        [
            (
                (
                    f'sum by (route) (rate(docllm_attempts_total{{{ROUTE},class="RATE"}}[5m])) / '
                    f"sum by (route) (rate(docllm_attempts_total{{{ROUTE}}}[5m]))"
                ),
                "{{route}}",
            )
        ],
        "percentunit",
    ),
    Panel(
        "State: 1 is the present one",
        [
            (
                f"max by (route, state, reason) (docllm_route_state{{{ROUTE}}})",
                "{{route}} {{state}} {{reason}}",
            )
        ],
    ),
    Panel(
        "How long calls take",
        [
            (quantile("docllm_call_duration_seconds", share, "route, le", ROUTE), legend)
            for share, legend in ((0.5, "{{route}} half"), (0.95, "{{route}} 95 %"))
        ],
        "s",
    ),
    Panel("Calls in a second", [(rate("docllm_call_duration_seconds_count", "route", ROUTE), "")]),
    Panel(
        "Slots in use", [(f"max by (route) (docllm_slots_busy{{{ROUTE}}})", "{{route}}")], "none"
    ),
    Panel(
        "Left of the provider's limits",
        [(f"min by (route, kind) (docllm_ratelimit_remaining{{{ROUTE}}})", "{{route}} {{kind}}")],
    ),
    Panel(
        "Cost in an hour",
        [(f"3600 * {rate('docllm_cost_units_total', 'route', ROUTE)}", "{{route}}")],
        "none",
    ),
    Panel(
        "Calls whose answer was given up, in a second",
        [(rate("docllm_calls_abandoned_total", "route", ROUTE), "{{route}}")],
    ),
    Panel(
        "How long tasks were due before an agent took them",
        [
            (quantile("docllm_task_wait_seconds", share, "le"), legend)
            for share, legend in ((0.5, "half"), (0.95, "95 %"))
        ],
        "s",
    ),
    Panel(
        "How long transactions take: 95 %",
        [
            (quantile("docllm_claim_duration_seconds", 0.95, "le"), "claim"),
            (quantile("docllm_settle_duration_seconds", 0.95, "le"), "settle"),
        ],
        "s",
    ),
    Panel(
        "Tasks that are settled in one transaction",
        [
            (
                (
                    f"{rate('docllm_settle_group_size_sum', 'group')}"
                    f" / {rate('docllm_settle_group_size_count', 'group')}"
                ),
                "mean",
            )
        ],
    ),
    Panel(
        "How long event loops take to answer",
        [(f"docllm_event_loop_lag_seconds{{{GROUP}}}", "{{instance}}")],
        "s",
    ),
    Panel(
        "Leases lost and outcomes that came too late, in an hour",
        [
            (f"sum(increase(docllm_leases_lost_total{{{GROUP}}}[1h]))", "leases"),
            (f"sum(increase(docllm_fenced_total{{{GROUP}}}[1h]))", "outcomes"),
        ],
    ),
    Panel(
        "Memory of agents",
        [(f"process_resident_memory_bytes{{{GROUP}}}", "{{instance}}")],
        "bytes",
    ),
    Panel(
        "Processors that agents use",
        [(f"rate(process_cpu_seconds_total{{{GROUP}}}[$__rate_interval])", "{{instance}}")],
        width=24,
    ),
)


def made() -> dict[str, Json]:
    """Return all dashboards by the names of their files."""
    group = variable("group", "label_values(docllm_tasks_open, group)")
    routes = f"label_values(docllm_attempts_total{{{GROUP}}}, route)"
    return {
        "docllm-overview.json": dashboard("docllm-overview", "docllm: overview", OVERVIEW, group),
        "docllm-routes.json": dashboard(
            "docllm-routes",
            "docllm: routes and agents",
            ROUTES,
            group,
            variable("route", routes, many=True),
        ),
    }


def main(argv: Sequence[str]) -> int:
    """Write the files that are stale, or only name them; return the exit code."""
    is_check, is_stale = "--check" in argv, False
    for name, content in made().items():
        path, text = FOLDER / name, json.dumps(content, indent=1) + "\n"
        if not path.exists() or path.read_text("utf-8") != text:
            is_stale = True
            print(f"deploy/grafana/{name}", "is stale" if is_check else "written")  # noqa: T201 - for a person
            if not is_check:
                path.write_text(text, "utf-8")
    return 1 if is_stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""An agent's report survives being stored, and no stored text can harm its reader."""

from dataclasses import asdict, fields, replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.schemas.agent_report import (
    MAX_BYTES,
    MAX_ROUTES,
    MAX_TYPES,
    AgentReport,
    BlockReport,
    CallReport,
    Reason,
    RouteFacts,
    SuspectReport,
    from_json,
    to_json,
)
from docllm.schemas.codes import Code

FULL = AgentReport(
    slots=64,
    running=2,
    draining=True,
    busy={"default": 2},
    routes=(
        RouteFacts(
            name="default",
            state="parked",
            error_class="MONEY",
            since="2026-01-31T08:00:00Z",
            open_in_s=3.5,
            allowed=1,
        ),
    ),
    routes_left_out=4,
    lag={"tasks": 12, "retry.30s": 1},
    oldest_call=CallReport(task=2**62, batch="night", key="a.txt", route="default", running_s=12.5),
    suspects=(SuspectReport(8, "night", "b.txt", 3, alone=True),),
    reasons=(
        Reason(
            code=Code.CALLS_HANG,
            name="default",
            error_class="",
            text="",
            seconds=99.5,
            count=2,
            usual_s=1.5,
        ),
    ),
    types=("document", "invoice"),
    settings="0123456789abcdef",
    program="0.1.0",
    revision="0001",
    loop_age_s=0.4,
    blocked_by=BlockReport(
        task=7, batch="night", key="c.txt", type="invoice", place="invoices.py:7", blocked_s=2.5
    ),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([part.name for part in (*fields(AgentReport), *fields(Reason))]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def stored(**values: Any) -> AgentReport:
    report = from_json(orjson.dumps(asdict(FULL) | values).decode())
    assert report is not None
    return report


def test_types_are_names_and_not_too_many() -> None:
    """A text that is no type's name is left out, so that none reaches a screen or an option."""
    many = [f"kind-{number}" for number in range(MAX_TYPES + 9)]

    assert stored(types=["a", "b c", "\x1b[1m", 7, None, "a" * 65]).types == ("a",)
    assert stored(types=many).types == tuple(many[:MAX_TYPES])
    assert stored(types="document").types == ()


def test_a_report_is_read_as_it_was_written() -> None:
    """Nothing is lost on the way, and an empty report is a report."""
    assert from_json(to_json(FULL)) == FULL
    assert from_json(to_json(AgentReport())) == AgentReport()


@pytest.mark.parametrize(
    "raw", [None, "", "{", "[]", "7", '"report"', "[" * 9000, "{" + " " * MAX_BYTES + "}"]
)
def test_what_is_no_report_is_none(raw: str | None) -> None:
    """Broken, nested or endless JSON ends no screen."""
    assert from_json(raw) is None


def test_a_newer_report_is_read_as_far_as_it_is_known() -> None:
    """Unknown names are ignored; unknown codes and states are kept."""
    reason = asdict(FULL.reasons[0]) | {"code": "out_of_budget", "budget": 5}

    report = stored(version=2, weather="fine", reasons=[reason])

    assert replace(report, version=1, reasons=()) == replace(FULL, reasons=())
    assert report.reasons == (replace(FULL.reasons[0], code="out_of_budget"),)


@pytest.mark.parametrize("value", [None, "64", True, -1, 1e999, [], {}, float("nan")])
def test_what_is_no_number_counts_as_nothing(value: object) -> None:
    """A reader can compare and add every number."""
    assert stored(slots=value).slots == 0
    assert stored(loop_age_s=value).loop_age_s == 0


def test_numbers_lists_and_texts_are_bounded() -> None:
    """A row of the ledger fills no screen and no memory."""
    report = stored(
        slots=1e30,
        busy={f"route {number}": number for number in range(100)},
        routes=[{"name": "n" * 100}] * 50,
        reasons=[{"text": "t" * 400}] * 10,
        blocked_by={"place": "p" * 400, "type": "t" * 400},
    )

    assert report.slots == 2**63 - 1
    assert list(report.busy.values()) == list(range(99, 79, -1))
    assert (len(report.routes), report.routes_left_out) == (MAX_ROUTES, 34)
    assert len(report.routes[0].name) == 64
    assert len(report.reasons[0].text) == 300
    assert report.blocked_by == BlockReport(place="p" * 300, type="t" * 64)


@given(st.dictionaries(st.sampled_from([part.name for part in fields(AgentReport)]), ANYTHING))
def test_any_json_is_read(values: dict[str, Any]) -> None:
    """Whatever JSON is stored, the reader returns a report that can be written again."""
    try:
        raw = orjson.dumps(values).decode()
    except orjson.JSONEncodeError:  # an integer too large for JSON's readers
        return

    report = from_json(raw)

    assert report is not None
    assert from_json(to_json(report)) == report


@pytest.mark.parametrize("letter", ["x", "ä", "\x00", "\ud800", "\U0001f600"])
def test_a_long_report_is_shortened(letter: str) -> None:
    """The worst routes stay, the others are counted, and every letter can be stored."""
    name, long = letter * 64, letter * 1000
    report = replace(
        FULL,
        busy={f"{letter * 60}{number}": number for number in range(100)},
        routes=tuple(RouteFacts(name, long, long, long) for _ in range(30)),
        reasons=tuple(Reason(long, long, long, long) for _ in range(30)),
        suspects=tuple(SuspectReport(1, long, long, 2) for _ in range(30)),
        oldest_call=CallReport(task=1, batch=long, key=long, route=long, running_s=1.0),
        settings=long,
    )

    text = to_json(report)

    assert len(text.encode()) <= MAX_BYTES
    read = from_json(text)
    assert read is not None
    assert len(read.routes) + read.routes_left_out == 30 + FULL.routes_left_out
    assert (read.slots, read.lag) == (FULL.slots, FULL.lag)

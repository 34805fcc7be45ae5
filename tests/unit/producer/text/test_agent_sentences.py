"""What an agent reports is shown in sentences that say what to do."""

import pytest

from docllm.producer.text.agent_sentences import blocked, joined, sentences
from docllm.schemas.agent_report import AgentReport, BlockReport, Reason, SuspectReport
from docllm.schemas.codes import Code


def said(*reasons: Reason) -> list[str]:
    return [sentence.text for sentence in sentences(AgentReport(reasons=reasons), "g")]


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            Reason(Code.ROUTE_PARKED, "gpt 4", "MONEY", "402: pay", seconds=9.6),
            (
                "route gpt 4 is parked, next try in 10 s, or now with: "
                "docllm agent resume 'gpt 4' --group g: MONEY: 402: pay"
            ),
        ),
        (
            Reason(Code.ROUTE_PARKED, "gpt", "AUTH", "401: who", seconds=9.6),
            (
                "route gpt is parked, correct its key, model or address, "
                "next try in 10 s, or now with: "
                "docllm agent resume gpt --group g: AUTH: 401: who"
            ),
        ),
        (
            Reason(Code.ROUTE_STOPPED, "default", "SERVER", "503", seconds=2.0),
            "route default waits 2 s: SERVER: 503",
        ),
        (
            Reason(Code.ROUTE_PAUSED, "default", "RATE", "429"),
            "route default tries one call: RATE: 429",
        ),
        (
            Reason(Code.CALLS_HANG, "default", seconds=500.0, count=1, usual_s=1.25),
            "route default: 1 call has been running for 500 s, usually they take 1.2 s",
        ),
        (
            Reason(Code.CALLS_HANG, "default", seconds=500.0, count=2),
            "route default: 2 calls have been running for 500 s",
        ),
        (
            Reason(Code.TOPIC_UNKNOWN, "g.inbox"),
            ("topic g.inbox paused: it is missing or was created again, run: docllm topics apply"),
        ),
        (
            Reason(Code.TOPIC_CHANGED, "g.tasks", text="retention.ms is 1000, must be -1"),
            (
                "topic g.tasks may lose waiting work: retention.ms is 1000, must be -1, run: "
                "docllm topics apply"
            ),
        ),
        (
            Reason(Code.ROUTE_LIMITED, "fast", text="rpm", count=5000, agents=3),
            "route fast waits for its rpm: 5,000 per minute, 3 agents",
        ),
        (
            Reason(Code.ROUTE_LIMITED, "fast", text="rpd", count=1000, agents=1),
            "route fast waits for its rpd: 1,000 per day, 1 agent",
        ),
        (
            Reason(Code.ROUTE_LIMITED, "fast", text="in_flight", count=1, agents=2),
            "route fast waits for its in_flight: 1 call at once, 2 agents",
        ),
        (
            Reason(Code.ROUTE_LIMITED, "scan", text="in_flight", count=4, agents=2, kind="type"),
            "type scan waits for its in_flight: 4 tasks at once, 2 agents",
        ),
        (
            Reason(Code.ROUTE_LIMITED, "crm", text="in_flight", count=1, agents=2, kind="limit"),
            "limit crm waits for its in_flight: 1 use at once, 2 agents",
        ),
        (
            Reason(Code.ROUTE_LIMITED, "fast", text="in_flight", count=40, agents=2),
            "route fast waits for its in_flight: 40 calls at once, 2 agents",
        ),
        (
            Reason(Code.ROUTE_LIMITED, "fast", text="rpm", count=60),
            "route fast waits for its rpm: 60 per minute, each agent uses its part of it",
        ),
        (
            Reason(Code.ROUTE_LIMITED, "fast", text="rpm", count=60, trouble="it is full"),
            (
                "route fast waits for its rpm: 60 per minute, each agent uses its part of it; "
                "Redis cannot be used: it is full"
            ),
        ),
        (
            Reason(Code.ROUTE_LIMITED, "fast", seconds=2.4, agents=2),
            "route fast waits 2 s: the provider refused calls",
        ),
        (Reason(Code.ROUTES_LEFT_OUT, count=3), "3 more routes wait"),
        (
            Reason(Code.LOCK_HELD, "account 7", text="task 9", count=2, seconds=12.3),
            "2 tasks wait for the lock account 7, for 12 s at most; task 9 holds it",
        ),
        (
            Reason(Code.LOCK_HELD, "account 7", text="task 9", count=1, seconds=12.3),
            "1 task waits for the lock account 7, for 12 s at most; task 9 holds it",
        ),
        (
            Reason(Code.TYPE_UNKNOWN, "invoice"),
            (
                "tasks of type invoice wait for an agent that knows it: add [types.invoice] to the "
                "agents' settings"
            ),
        ),
        (
            Reason(
                code=Code.ROUTE_STOPPED,
                name="a",
                error_class="SERVER",
                text="503: away",
                seconds=3.0,
                fallback="b",
            ),
            "route a waits 3 s: SERVER: 503: away; meanwhile its tasks run on route b",
        ),
        (
            Reason(Code.ROUTE_REFUSED, "fast", text="no agent that received it has a route fast"),
            (
                "tasks of route fast wait, no agent that received it has a route fast; correct the "
                "agents' settings, or load the tasks anew"
            ),
        ),
        (
            Reason(Code.TYPE_ASLEEP, "night", text="22:00-06:00 UTC", seconds=5400.0),
            ("tasks of type night wait for their hours (22:00-06:00 UTC), which begin in 1:30:00"),
        ),
        (
            Reason(Code.SETTINGS_REFUSED, text="docllm.toml is not TOML: line 3"),
            "the changed settings are not used: docllm.toml is not TOML: line 3",
        ),
        (Reason(Code.ROUTES_LEFT_OUT, count=1), "1 more route waits"),
        (Reason("out_of_budget", "night", text="0.00"), "out_of_budget night 0.00"),
    ],
)
def test_every_reason_has_a_sentence(reason: Reason, text: str) -> None:
    """A code of a newer version is shown as it is."""
    assert said(reason) == [text]


def test_the_worst_reason_comes_first() -> None:
    """A person reads the first line, so it is the one that asks for a person."""
    codes = [Code.ROUTES_LEFT_OUT, "newer", Code.ROUTE_PAUSED, Code.ROUTE_PARKED]
    report = AgentReport(
        reasons=tuple(Reason(code, "r") for code in codes),
        suspects=(SuspectReport(7, "night", "k", 3, alone=True),),
    )

    assert [sentence.about for sentence in sentences(report, "g")] == [
        ("route_parked", "r"),
        ("suspect", "7"),
        ("route_paused", "r"),
        ("routes_left_out", "r"),
        ("newer", "r"),
    ]
    assert "task k of batch night runs alone in its agent: 3 agents were lost over it" in joined(
        sentences(report, "g")
    )


def test_no_reason_fills_the_screen() -> None:
    """A server's text is cut."""
    assert len(said(Reason(Code.ROUTE_PAUSED, "r", "RATE", "x" * 999))[0]) <= 500


def test_a_loop_is_blocked_after_some_seconds() -> None:
    """The main loop reports each second; a short stall is no news."""
    assert blocked(AgentReport(loop_age_s=5.0), "a") == []
    assert joined(blocked(AgentReport(loop_age_s=5.1), "a")) == (
        "the event loop of a has been blocked for 5 s"
    )


def test_what_blocks_a_loop_is_named() -> None:
    """A task is named with its type and place; other code by its place alone."""
    block = BlockReport(
        task=7, batch="night", key="k", type="invoice", place="invoices.py:7", blocked_s=12.4
    )

    assert joined(blocked(AgentReport(blocked_by=block), "a")) == (
        "the event loop of a has been blocked for 12 s by task k of batch night, type invoice, "
        "at invoices.py:7"
    )
    block = BlockReport(place="x.py:1", blocked_s=2.0)
    assert joined(blocked(AgentReport(blocked_by=block), "a")) == (
        "the event loop of a has been blocked for 2 s at x.py:1"
    )

"""The rehearsal LLM remembers its calls."""

import io
import json

from tests.unit.agent.llm.rehearsal.test_service import chat, get, service


def test_calls_are_remembered() -> None:
    """Calls are counted by task, status and fault, and each start and end is logged."""
    log = io.BytesIO()
    made = service(log=log)
    first, second = made.plan(chat()), made.plan(chat())
    assert first.done is not None
    assert second.done is not None

    first.done(120, False)  # noqa: FBT003 - the signature of Plan.done
    during = get(made, "/stats")
    second.done(0, True)  # noqa: FBT003 - the same
    after = get(made, "/stats")

    assert (during["in_flight"], after["in_flight"]) == (1, 0)
    assert (after["total"], after["calls"], after["statuses"]) == (
        2,
        {"b/t": 2},
        {"200": 1, "0": 1},
    )
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [
        (line["event"], line.get("path"), line.get("status"), line.get("bytes")) for line in lines
    ] == [
        ("start", "/v1/chat/completions", None, None),
        ("start", "/v1/chat/completions", None, None),
        ("end", None, 200, 120),
        ("end", None, 0, 0),
    ]
    assert {line["id"] for line in lines} == {"b/t#1"}


def test_end_of_a_call_names_its_fault() -> None:
    """The log of a failed call names its fault.

    A checker can thus tell a planned failure from one of docllm's own.
    """
    log = io.BytesIO()
    made = service("503=1", log=log)
    call = made.plan(chat())
    assert call.done is not None

    call.done(50, False)  # noqa: FBT003 - the signature of Plan.done

    assert [json.loads(line).get("fault") for line in log.getvalue().splitlines()] == [None, "503"]

"""The page of one task or record, for a person and as a script's JSON."""

from dataclasses import replace
from datetime import datetime

import orjson
import pytest

from docllm.producer.ledger.task_story import (
    DeadLetter,
    PastAttempt,
    QuarantinedRecord,
    StoredResult,
    Story,
)
from docllm.producer.screen.task_page import (
    record_json,
    record_lines,
    story_json,
    story_lines,
    trace_line,
)
from docllm.schemas.task.states import Status

# The database's times are UTC without a zone.
AT = datetime(2026, 3, 1, 12, 30, 15, 250000)  # noqa: DTZ001
ESCAPES = "a\x1b[31mred\r\nb\x00\u202e"
ATTEMPT = PastAttempt(
    attempt=1,
    fence=0,
    outcome="dead",
    error_class="TOO_LONG",
    error=ESCAPES,
    call_id="b/k#1",
    started_at=AT,
    duration_ms=1500,
    tokens_in=10,
    tokens_out=5,
    cost_micro=300,
)
RESULT = StoredResult(
    created_at=AT,
    model="m",
    call_id="trace",
    duration_ms=100,
    tokens_in=1,
    tokens_out=2,
    cost_micro=3,
)
LETTER = DeadLetter(
    fence=0,
    disposition="permanent",
    error_class="TOO_LONG",
    fingerprint="ab" * 16,
    error=ESCAPES,
    died_at=AT,
    origin_topic="docllm.tasks",
    origin_partition=3,
    origin_offset=17,
)
STORY = Story(
    number=7,
    key="k",
    batch="b",
    type="document",
    tenant="default",
    status=Status.DEAD,
    attempts=1,
    max_attempts=5,
    lease_losses=2,
    losses=2,
    replays=3,
    fence=4,
    created_at=AT,
    expires_at=None,
    raw_key=b"k",
    headers=None,
    input=b"{}",
    letter=LETTER,
    result=None,
    history=(ATTEMPT,),
)
# A row as it is read.
RECORD = QuarantinedRecord(
    number=7,
    topic="docllm.inbox",
    partition=0,
    offset=5,
    key=b"k",
    value=b"\xff",
    cut=False,
    headers=b'[["h","v"]]',
    disposition="undecodable",
    error_class="UNDECODABLE",
    fingerprint="",
    error=ESCAPES,
    created_at=AT,
    replayed_at=None,
    seen=1,
)


def printable(lines: list[str]) -> bool:
    return all(line.isprintable() for line in lines)


def test_the_page_of_a_task_shows_everything_known() -> None:
    """A task's page has everything that is known about it.

    That is its state, the three numbers separately, the reason, each attempt with call id and
    cost, and the input.
    """
    text = "\n".join(story_lines(STORY))

    for expected in (
        "task k of batch b: dead\n",
        "1 of 5 attempts counted, cut off 2 times by the end of its agent, replayed 3 times\n",
        "permanent, TOO_LONG, fingerprint abab",
        "its record: topic docllm.tasks, partition 3, offset 17\n",
        "attempt 1, dead: TOO_LONG, 1.5 s, 10+5 tokens, cost 0.0003",
        "call b/k#1",
        "input, 2 bytes: {}",
    ):
        assert expected in text, expected
    assert "tenant" not in text
    assert "type document, tenant acme, loaded" in "\n".join(
        story_lines(replace(STORY, tenant="acme"))
    )


def test_a_late_answer_of_a_lost_attempt_is_shown_and_inert() -> None:
    """It counts for nothing, but a person who asks whether the task had finished sees it."""
    lost = replace(ATTEMPT, outcome="lost", error_class="AGENT_LOST", agent="host:1", reply=ESCAPES)

    lines = list(story_lines(replace(STORY, history=(lost,))))

    assert any("lost with agent host:1: AGENT_LOST" in line for line in lines)
    assert any("its answer came too late, and counts for nothing: " in line for line in lines)
    assert printable(lines)
    without = list(story_lines(replace(STORY, history=(replace(lost, reply=""),))))
    assert not any("too late" in line for line in without)


def test_the_page_of_a_task_has_its_end_and_who_runs_it() -> None:
    """A result has its model and cost; a task that runs has its agent, and since when."""
    done = replace(
        STORY,
        status=Status.SUCCEEDED,
        letter=None,
        result=RESULT,
        history=(),
        expires_at=AT,
    )

    lines = list(story_lines(done))

    assert lines[0] == "task k of batch b: succeeded"
    assert any("by m, 1+2 tokens" in line for line in lines)
    assert any("deadline 2026-03-01T12:30:15Z" in line for line in lines)
    running = replace(done, status=Status.PROCESSING, claimed_at=AT, agent="host:1")
    assert next(story_lines(running)) == (
        "task k of batch b: processing since 2026-03-01T12:30:15Z in agent host:1"
    )


def test_the_page_says_nothing_of_what_never_happened() -> None:
    """A task without losses, replays and traces shows no zeros and no empty places."""
    plain = replace(
        STORY,
        losses=0,
        replays=0,
        attempts=1,
        max_attempts=1,
        history=(replace(ATTEMPT, call_id=""),),
        result=replace(RESULT, call_id=""),
    )

    text = "\n".join(story_lines(plain))

    assert "\n  1 of 1 attempt counted\n" in text
    assert "trace" not in text


def test_the_page_names_route_and_model_of_each_answer() -> None:
    """Result, dead letter and attempts name them; an estimated cost is called so."""
    story = replace(
        STORY,
        letter=replace(LETTER, route="gpu", model="large"),
        result=replace(RESULT, route="cpu"),
        history=(replace(ATTEMPT, route="gpu", model="small", unsure_micro=200),),
    )

    text = "\n".join(story_lines(story))

    assert "died 2026-03-01T12:30:15Z by large on route gpu\n" in text
    assert "succeeded 2026-03-01T12:30:15Z by m on route cpu, 1+2 tokens" in text
    assert "attempt 1, dead by small on route gpu: TOO_LONG, 1.5 s" in text
    assert "10+5 tokens, cost 0.0003 (0.0002 of it estimated)" in text
    (attempt,) = story_json(story)["history"]
    assert (attempt["route"], attempt["model"], attempt["unsure"]) == ("gpu", "small", 0.0002)


def test_an_end_without_an_attempt_is_not_counted_as_one() -> None:
    """A task whose deadline passed before its second attempt has had one."""
    late = replace(ATTEMPT, attempt=2, error_class="EXPIRED")
    text = "\n".join(story_lines(replace(STORY, history=(ATTEMPT, late))))

    assert "attempts that did not succeed: 1\n" in text
    assert "no attempt, dead: EXPIRED, " in text


def test_nothing_acts_on_a_terminal() -> None:
    """Escapes, line ends and direction marks in any text do not reach the terminal.

    The texts are errors, ids, keys and values.
    """
    hostile = ESCAPES.encode()
    story = replace(
        STORY,
        key=ESCAPES,
        batch=ESCAPES,
        input=hostile,
        letter=replace(LETTER, route=ESCAPES, model=ESCAPES),
        history=(replace(ATTEMPT, call_id=ESCAPES, route=ESCAPES, model=ESCAPES),),
    )
    record = replace(RECORD, topic=ESCAPES, key=hostile, value=hostile)

    assert printable(list(story_lines(story)))
    assert printable(list(record_lines(record)))


def test_what_the_model_said_is_shown_with_its_attempt() -> None:
    """A terminal acts on nothing in it; `full` keeps its line ends."""
    story = replace(STORY, history=(replace(ATTEMPT, reply=f"{ESCAPES}{'x' * 600}"), ATTEMPT))

    lines = list(story_lines(story))
    whole = "\n".join(story_lines(story, full=True)).split("\n")

    assert printable(lines)
    assert printable(whole)
    (said,) = (line for line in lines if "the model said: " in line)
    assert said.startswith("      the model said: a [31mred  b")
    assert said.endswith("x ... (--full shows all of it)")
    assert f"    b  {'x' * 600}" in whole


def test_a_large_input_is_shortened_for_a_person_alone() -> None:
    """The terminal shows the beginning of a large input; the JSON holds all of it.

    The JSON holds it as text, or as base64 if it is not text.
    """
    body = "ä".encode() * 5000
    large = replace(STORY, input=body, raw_key=b"\xff\x00")

    last = list(story_lines(large))[-1]
    whole = list(story_lines(large, full=True))[-1]
    document = orjson.loads(orjson.dumps(story_json(large)))

    assert "input, 10000 bytes" in last
    assert last.endswith("(--full shows all of it)")
    assert len(last) < 1200
    assert whole.endswith("ä" * 5000)
    assert document["input"] == {"text": body.decode()}
    assert document["raw_key"] == {"base64": "/wA="}


def test_an_answer_is_shown_with_its_size() -> None:
    """Its first 500 characters on one line; with `full` all of it, with its line ends."""
    answer = f"one\ntwo\x1b[31m {'x' * 500}"

    short = list(story_lines(STORY, answer))[-1]
    *_, first, second = "\n".join(story_lines(STORY, answer, full=True)).split("\n")

    assert short.startswith("  answer, 513 characters: one two [31m xxx")
    assert short.endswith("x ... (--full shows all of it)")
    assert first == "  answer, 513 characters: one"
    assert second == f"    two [31m {'x' * 500}"
    assert "answer" not in "".join(story_lines(STORY))


@pytest.mark.parametrize(
    ("value", "cut"),
    [
        (b"\xff" * 250, False),
        (b"\xff" * 251, True),
        (("\u3000" * 1000).encode(), False),
        (("\U0001f600" * 1001).encode(), True),
        (b"x" * 1000, False),
        (b"x" * 5000, True),
    ],
)
def test_a_value_is_marked_as_cut_only_if_it_is_cut(
    value: bytes,
    cut: bool,  # noqa: FBT001
) -> None:
    """A value is marked as cut only if it is cut, whatever its bytes look like.

    On the screen, a byte that is not text is shown as four letters, a wide blank as one.
    """
    line = list(record_lines(replace(RECORD, value=value)))[-1]

    assert line.endswith("(--full shows all of it)") == cut


def test_cut_headers_are_marked_as_cut() -> None:
    """Cut headers are marked as cut.

    A record may have thousands of headers, and the person may look for the last one.
    """
    lines = list(record_lines(replace(RECORD, headers=orjson.dumps([["h", "v" * 1000]]))))

    (line,) = (printed for printed in lines if "headers: " in printed)
    assert line.endswith("v ... (--full shows all of it)")


def test_a_trace_is_named_with_its_link() -> None:
    """A link is the settings', and made inert all the same."""
    assert trace_line("4b", "") == "  OpenTelemetry trace 4b"
    assert trace_line("4b", "https://j/4b\x1b") == "  OpenTelemetry trace 4b: https://j/4b "


def test_the_json_of_a_story_is_whole() -> None:
    """Everything that there is, as plain JSON."""
    document = orjson.loads(orjson.dumps(story_json(STORY)))

    assert (document["version"], document["kind"], document["status"], document["key"]) == (
        1,
        "task",
        "dead",
        "k",
    )
    assert (document["attempts"], document["lease_losses"], document["replays"]) == (1, 2, 3)
    assert document["letter"]["died_at"] == "2026-03-01T12:30:15.250000Z"
    assert document["history"][0] | {"started_at": ""} == {
        "attempt": 1,
        "fence": 0,
        "outcome": "dead",
        "error_class": "TOO_LONG",
        "error": ESCAPES,
        "trace_id": "b/k#1",
        "started_at": "",
        "duration_ms": 1500,
        "tokens_in": 10,
        "tokens_out": 5,
        "cost": 0.0003,
        "unpriced_calls": 0,
        "tokens_cached": 0,
        "unsure": 0,
        "route": "",
        "model": "",
        "release": "",
        "reply": "",
        "agent": "",
    }
    assert document["result"] is None


def test_the_traceback_of_a_dead_task_is_shown_with_its_lines() -> None:
    """A line for each of its lines, none of which a terminal acts on; the JSON has it as it is."""
    text = f'  File "a.py", line 3, in extract\n    {ESCAPES}'
    story = replace(STORY, letter=replace(LETTER, traceback=text))

    lines = list(story_lines(story))

    assert printable(lines)
    start = lines.index("    where its last attempt failed:")
    assert lines[start + 1] == '      File "a.py", line 3, in extract'
    assert lines[start + 2].startswith("        a [31mred")
    assert story_json(story)["letter"]["traceback"] == text
    assert "    where its last attempt failed:" not in list(story_lines(STORY))


def test_the_json_of_a_record_is_whole() -> None:
    """The JSON has the record's bytes, its headers, and whether its value was cut."""
    document = orjson.loads(orjson.dumps(record_json(RECORD)))

    assert (document["kind"], document["number"], document["topic"], document["cut"]) == (
        "quarantine",
        7,
        "docllm.inbox",
        False,
    )
    assert (document["key"], document["value"], document["headers"]) == (
        {"text": "k"},
        {"base64": "/w=="},
        [["h", "v"]],
    )
    assert record_json(replace(RECORD, value=None))["value"] is None


def test_a_record_says_when_it_is_cut_or_replayed() -> None:
    """The page says if a record is cut or replayed, so nobody takes its beginning for the whole."""
    text = "\n".join(record_lines(replace(RECORD, cut=True, replayed_at=AT, key=None)))

    assert "cut: the beginning of a larger one" in text
    assert "replayed 2026-03-01T12:30:15Z" in text
    assert "key: none" in text

"""Records made to do harm are quarantined, and the good ones behind them run as usual."""

from dataclasses import replace

import orjson

from docllm.schemas.task.record.envelope import Outgoing, Publication, encode
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment, task_line

KEY = b"one partition, so that the good record is behind the others"
GOOD = orjson.dumps(task_line(1))
FORGED = "x\n2027-01-01 00:00:00,000 CRITICAL agent: all is lost \x1b[31m\u202e"
BOMB = {"properties": {f"p{number}": {"pattern": rf"\pL{{200}}{number}"} for number in range(150)}}


def with_schema(schema: object) -> bytes:
    return orjson.dumps(task_line(2, schema=schema))


# The anchors make the validator panic, which is not an Exception. The first schema is refused
# beforehand, the second is stopped by the guard.
PANICS = {
    name: {
        "anyOf": [{"$id": first, "$ref": "#a", "$defs": {"r": {"$anchor": "a"}}}, {"$id": second}]
    }
    for name, first, second in (
        ("an $id twice", "x:y", "x:y"),
        ("an $id twice, spelled otherwise", "b", "./b"),
    )
}
INBOX: dict[str, tuple[bytes | None, list[tuple[str, bytes]]]] = {
    "nothing": (None, []),
    "no JSON": (b"\0" * 100, []),
    "other JSON": (b"null", []),
    "deep": (b"[" * 100_000, []),
    "deep in a field": (
        b'{"id":"d","prompt":"p","metadata":{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}}",
        [],
    ),
    "deep in a dropped field": (
        b'{"metadata":' + b"[" * 1000 + b"]" * 1000 + b',"metadata":{},"id":"d","prompt":"p"}',
        [],
    ),
    "a name twice": (b'{"id":"d","id":"e","prompt":"p"}', []),
    "half a letter": (b'{"id":"d","prompt":"\\ud800"}', []),
    "a forged line of the log": (orjson.dumps({"id": "d", "prompt": "p", FORGED: 1}), []),
    "patterns that fill the memory": (with_schema(BOMB), []),
    "a pattern that takes minutes": (with_schema({"pattern": r"\s" * 5000}), []),
    "alternatives of alternatives": (
        with_schema(
            {"allOf": [{"$ref": "#/$defs/a"}] * 400, "$defs": {"a": {"anyOf": [{}] * 400}}}
        ),
        [],
    ),
    **{name: (with_schema(schema), []) for name, schema in PANICS.items()},
    "a model with blanks": (orjson.dumps(task_line(2, model="m ")), []),
    "a batch that is no text": (GOOD, [("docllm-batch", b"\xff")]),
    "a batch on two lines": (GOOD, [("docllm-batch", b"a\nb")]),
    "a long batch": (GOOD, [("docllm-batch", b"b" * 192)]),
}
HEADERS: dict[str, tuple[str, bytes]] = {
    "another version": ("docllm-v", b"2"),
    "a fence below zero": ("docllm-fence", b"-1"),
    "a fence of other digits": ("docllm-fence", "\u0663".encode()),
    "a fence that leaps": ("docllm-fence", b"5000"),
    "a fence without end": ("docllm-fence", b"9" * 5000),
    "a task that is no number": ("docllm-task", "\u00b2".encode()),
    "a task of another size": ("docllm-task", b"1e3"),
    "another ledger": ("docllm-ledger", b"0" * 32),
    "another group": ("docllm-group", b"x"),
    "a ledger that colours the terminal": ("docllm-ledger", b"L\x1b[31m"),
    "a group that forges a line of the log": (
        "docllm-group",
        b"g\r\n2027-01-01 00:00:00,000 INFO    agent: FORGED",
    ),
}
TWICE = [("docllm-\x1b[2J\n2027-01-01 FORGED", b"")] * 2


def test_hostile_records_of_the_inbox_stop_no_agent(deployment: Deployment) -> None:
    """Hostile records of the inbox stop no agent; it would read them again after each start."""
    deployment.llm("--latency", "0")
    deployment.producer("topics", "apply")
    inbox = deployment.topics.name("inbox")
    bad = [Outgoing(inbox, KEY, value, headers) for value, headers in INBOX.values()]
    deployment.bus.write(
        [
            *bad,
            Outgoing(inbox, KEY, b"\xef\xbb\xbf" + GOOD + b"\r\n", []),
            Outgoing(inbox, KEY, GOOD, []),
        ]
    )
    deployment.expect(f"{deployment.group}-direct", ["t1"])

    deployment.until_done()

    run = deployment.evidence()
    assert checker.violations(run) == []
    assert len(run.quarantined) == len(bad)
    assert "\n2027-01-01" not in deployment.said()


def test_hostile_records_among_the_tasks_stop_no_agent(deployment: Deployment) -> None:
    """Hostile records among the tasks stop no agent, whatever their headers say."""
    llm = deployment.llm("--latency", "0")
    deployment.load(1)
    (task,) = deployment.ledger.tasks()
    topic = deployment.topics.name("tasks")
    headers = encode(
        Publication(deployment.status()["ledger"], deployment.group, "tasks", task.id, 0)
    )
    copy = Outgoing(topic, b"t0", task.value, headers)
    bad = [
        replace(copy, headers=[(name, value if name == other else old) for name, old in headers])
        for other, value in HEADERS.values()
    ]
    bad += [
        replace(copy, key=b"other"),
        replace(copy, value=task.value + b" "),
        replace(copy, value=b""),
    ]
    bad += [
        replace(copy, headers=[*headers, ("docllm-fence", b"1")]),
        replace(copy, headers=[*headers, *TWICE]),
        replace(copy, headers=[]),
        Outgoing(topic, None, None, []),
    ]
    deployment.bus.write([*bad, *[copy] * 50])

    deployment.until_done()

    run = deployment.evidence()
    assert checker.violations(run) == []
    assert len(run.quarantined) == len(bad)
    assert len(llm.calls()) == 1
    assert all(
        line.isprintable() and not line.startswith("2027-01-01")
        for line in deployment.said().split("\n")
    )


def test_lines_with_slow_patterns_delay_no_other_task(embedded: Deployment) -> None:
    """Lines with slow patterns are read and judged in the child, and run.

    Each used to take 0.1 s of the event loop, twice in each attempt.
    """
    embedded.llm("--latency", "0")
    embedded.producer("topics", "apply")
    slow = [
        task_line(number, schema={"anyOf": [{"pattern": rf"\pL{{300}}{number}"}, {}]})
        for number in range(60)
    ]
    embedded.bus.write(
        [Outgoing(embedded.topics.name("inbox"), KEY, orjson.dumps(line), []) for line in slow]
    )
    embedded.expect(f"{embedded.group}-direct", [f"t{number}" for number in range(60)])

    embedded.until_done()

    run = embedded.evidence()
    assert checker.violations(run) == []
    assert len(run.calls) == len(slow)
    assert "silent for too long" not in embedded.said()


def test_load_names_a_line_that_makes_the_validator_panic(deployment: Deployment) -> None:
    """`load` reports a line that makes the validator panic, and ends with 1.

    The lines around it are loaded and run.
    """
    deployment.llm("--latency", "0")
    lines = [
        task_line(1),
        task_line(2, schema=PANICS["an $id twice, spelled otherwise"]),
        task_line(3),
    ]
    path = deployment.folder / "tasks.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, lines)))

    done = deployment.run("producer", "load", str(path), "--group", deployment.group)
    deployment.expect("tasks", ["t1", "t3"])
    deployment.until_done()

    assert done.code == 1, done
    assert "line 2: schema" in done.err
    assert "Traceback" not in done.err
    assert checker.violations(deployment.evidence()) == []

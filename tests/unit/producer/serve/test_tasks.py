"""The door `/v1`: what `load` takes is taken, what it refuses is refused, and nothing is halved."""

import json
import socket
from pathlib import Path

import orjson
import pytest

from docllm.producer.ledger.results import export
from docllm.producer.ledger.store import Origin
from docllm.producer.serve import posted, tasks
from docllm.schemas.errors import UnsafeStateError
from tests.support.commands import run
from tests.support.serving import Client, served

POST = "/v1/tasks?batch=B"
LINE = b'{"id":"a","prompt":"x"}\n'


def lines(count: int) -> bytes:
    return b"".join(b'{"id":"t%d","prompt":"x"}\n' % number for number in range(count))


def states(client: Client, batch: str = "B") -> dict[str, str]:
    """Return the states of a batch's tasks, in the order of its results."""
    rows = map(orjson.loads, client.get(f"/v1/batches/{batch}/results").body.splitlines())
    return {row["id"]: row["status"] for row in rows}


def test_lines_are_loaded_and_bad_ones_named(client: Client) -> None:
    """The answer names line, field and fix; the same lines again load nothing."""
    body = LINE + b'{"id":"b"}\n' + b'{"id":"c","prompt":"x","type":"documnet"}\n' + LINE
    fix = "say what to do, for example Summarize: {document}"

    first, again = client.post(POST, body), client.post(POST, body)

    assert (first.status, again.status) == (202, 202)
    rejected = first.json["rejected"]
    assert first.json == {"batch": "B", "loaded": 1, "twins": 1, "rejected": rejected}
    assert rejected[0] == {"line": 2, "field": "prompt", "error": "is missing", "fix": fix}
    assert (rejected[1]["line"], rejected[1]["field"]) == (3, "type")
    assert "did you mean document?" in rejected[1]["fix"]
    assert again.json == {"batch": "B", "loaded": 0, "twins": 2, "rejected": rejected}
    assert states(client) == {"a": "pending"}


def test_an_id_with_other_content_is_refused(client: Client) -> None:
    """As by a load: a task never changes under its id."""
    client.post(POST, LINE)

    answer = client.post(POST, LINE.replace(b'"x"', b'"y"') + LINE).json

    assert (answer["loaded"], answer["twins"]) == (0, 1)
    (rejected,) = answer["rejected"]
    assert (rejected["line"], rejected["field"]) == (1, "id")
    assert "already with another prompt" in rejected["error"]
    assert rejected["fix"] == "give the line another id, or post it to another batch"


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":"a","prompt":"x"}',
        b'{\n  "id": "a",\r\n  "prompt": "x"\n}\n',
        b'[{"id":"a","prompt":"x"}]',
        b'\xef\xbb\xbf{"id":"a","prompt":"x"}\r\n',
        b'{"custom_id":"a","body":{"model":"m","messages":[{"role":"user","content":"x"}]}}',
    ],
)
def test_one_object_is_one_task(client: Client, body: bytes) -> None:
    """In one line or in several, alone or in a list, in either format of lines."""
    assert client.post(POST, body).json["loaded"] == 1
    assert states(client) == {"a": "pending"}


@pytest.mark.parametrize(
    ("path", "body", "param", "words"),
    [
        ("/v1/tasks", LINE, "batch", "?batch=NAME"),
        ("/v1/tasks?batch=%20x", LINE, "batch", "printable"),
        ("/v1/tasks?batch=B&close=1", LINE, "close", "true or false"),
        ("/v1/tasks?batch=B&closed=true", LINE, "closed", "known are: batch, close"),
        (POST, b"", None, "no task line"),
        (POST, b" \n\n", None, "no task line"),
        (POST, b"%PDF-1.7\n", None, "PDF document"),
        (POST, b"\x1f\x8b\x08\x00\x00", None, "packed"),
        (POST, b"\x00\x01\x02\x03", None, "not text"),
    ],
)
def test_what_is_no_task_at_all_is_refused(
    client: Client, path: str, body: bytes, param: str | None, words: str
) -> None:
    """One answer says what is wrong, and no batch is made."""
    answer = client.post(path, body)

    error = answer.json["error"]
    assert (answer.status, error["param"]) == (400, param)
    assert words in error["message"]
    assert client.get("/v1/batches/B").status == 404


@pytest.mark.parametrize("line", [b'{"id":"a"}\n', LINE.replace(b'"x"', b'"y"')])
def test_a_body_of_bad_lines_alone_is_refused(client: Client, tmp_path: Path, line: bytes) -> None:
    """A client that reads the status alone sees that nothing was loaded; nothing is closed."""
    client.post(POST, LINE)

    answer = client.post(f"{POST}&close=true", line)

    (rejected,) = answer.json["rejected"]
    assert (answer.status, answer.json["error"]["param"]) == (400, rejected["field"])
    assert answer.json["error"]["message"].startswith("the line is bad; line 1: ")
    assert rejected["error"] in answer.json["error"]["message"]
    assert (answer.json["loaded"], closed(tmp_path)) == (0, {"B": False})


def test_an_answer_names_so_many_lines_and_counts_the_rest(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posted, "MAX_NAMED", 2)

    answer = client.post(POST, b"{}\n" * 5).json

    assert ([line["line"] for line in answer["rejected"]], answer["rejected_more"]) == ([1, 2], 3)
    assert client.get("/v1/batches/B").status == 404


@pytest.mark.parametrize("head", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_a_client_that_vanishes_while_it_sends_leaves_nothing(client: Client, head: str) -> None:
    """Whole lines of it have come, and none is loaded."""
    part = LINE if "Length" in head else b"%x\r\n%s\r\n" % (len(LINE), LINE)
    with socket.create_connection(("127.0.0.1", client.port), 30) as connection:
        connection.sendall(f"POST {POST} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n".encode())
        connection.sendall(part)

    assert client.get("/livez").status == 200
    assert client.get("/v1/batches/B").status == 404
    assert client.post(POST, LINE).json["loaded"] == 1


def test_a_batch_closes_when_it_is_told(client: Client, tmp_path: Path) -> None:
    """With the last lines, again, or by an empty body; later lines may still come."""
    client.post(POST, LINE)
    assert closed(tmp_path) == {"B": False}

    assert client.post(f"{POST}&close=true").json["loaded"] == 0
    assert closed(tmp_path) == {"B": True}
    assert client.post("/v1/tasks?batch=C&close=true", LINE).json["loaded"] == 1
    assert client.post("/v1/tasks?batch=C&close=true", LINE).json["twins"] == 1
    assert client.post("/v1/tasks?batch=C&close=false", lines(3)).json["loaded"] == 3
    assert closed(tmp_path) == {"B": True, "C": True}
    assert client.post("/v1/tasks?batch=D&close=true").status == 400


def closed(folder: Path) -> dict[str, bool]:
    """Return by batch whether it is closed."""
    import sqlite3  # noqa: PLC0415 - this helper alone looks behind the door

    with sqlite3.connect(folder / "docllm-data" / "ledger.sqlite") as ledger:
        rows = ledger.execute("SELECT name, closed_at IS NOT NULL FROM batch").fetchall()
    ledger.close()
    return {name: bool(is_closed) for name, is_closed in rows}


def test_a_post_joins_no_batch_of_a_load(client: Client, tmp_path: Path) -> None:
    """Whoever loaded it takes its ids for its own lines; and the other way round."""
    (tmp_path / "L.jsonl").write_bytes(LINE)
    run(tmp_path, "load", str(tmp_path / "L.jsonl"))
    client.post(POST, LINE)

    answer = client.post("/v1/tasks?batch=L", lines(1))

    assert answer.status == 409
    assert "set join_batches = true in [serve]" in answer.json["error"]["message"]
    assert states(client, "L") == {"a": "pending"}
    with pytest.raises(UnsafeStateError, match=r"posted over HTTP.* --batch"):
        run(tmp_path, "load", str(tmp_path / "L.jsonl"), "--batch", "B")


def test_a_post_joins_a_batch_of_a_load_where_that_is_configured(tmp_path: Path) -> None:
    """The batch stays that of its load, which closes it."""
    (tmp_path / "docllm.toml").write_text("[serve]\njoin_batches = true\n")
    (tmp_path / "L.jsonl").write_bytes(LINE)
    run(tmp_path, "load", str(tmp_path / "L.jsonl"))

    with served(tmp_path) as client:
        assert client.post("/v1/tasks?batch=L", lines(1)).json["loaded"] == 1
        assert client.post("/v1/tasks?batch=L&close=true", lines(2)).status == 409
        assert client.get("/v1/batches/L").json["origin"] == Origin.LOAD.name.lower()


def test_a_cancelled_batch_takes_no_tasks(client: Client, tmp_path: Path) -> None:
    client.post(POST, LINE)
    run(tmp_path, "cancel", "--batch", "B")

    assert client.post(POST, lines(1)).status == 409


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("2024/a b.txt", "2024%2Fa%20b.txt"),
        ("2024/a b.txt", "2024/a%20b.txt"),
        ("../../etc/passwd", "../../etc/passwd"),
        ("..%2F", "..%252F"),
        ("ä?#", "%C3%A4%3F%23"),
    ],
)
def test_any_id_can_be_looked_up(client: Client, key: str, path: str) -> None:
    """An id is a name, whatever it looks like; a slash may be written as %2F."""
    client.post("/v1/tasks?batch=a%2Fb", json.dumps({"id": key, "prompt": "x"}).encode())

    answer = client.get(f"/v1/tasks/a%2Fb/{path}")

    (line,) = client.get("/v1/batches/a%2Fb/results").body.splitlines()
    assert answer.json == orjson.loads(line) | {"state": "pending"}
    assert answer.json["id"] == key


@pytest.mark.parametrize("path", ["B/none", "B/%FF", "none/a", "B/", "B/%00", f"B/{'x' * 5000}"])
def test_what_is_not_there_is_not_found(client: Client, path: str) -> None:
    client.post(POST, LINE)

    answer = client.get(f"/v1/tasks/{path}")

    assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")


def test_a_batch_says_how_far_it_is(client: Client, tmp_path: Path) -> None:
    client.post(POST, lines(3))
    assert (client.get("/v1/batches/B").json["done"], states(client)["t0"]) == (False, "pending")
    run(tmp_path, "cancel", "--batch", "B")

    answer = client.get("/v1/batches/B").json

    assert (answer["batch"], answer["done"], answer["cost"]) == ("B", True, 0.0)
    assert (answer["counts"]["total"], answer["counts"]["cancelled"]) == (3, 3)


def test_results_are_those_of_an_export(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts, each of which is read when the one before it is taken."""
    monkeypatch.setattr(tasks, "PART_BYTES", 1000)
    monkeypatch.setattr(export, "_PAGE", 7)
    client.post(POST, lines(60))
    run(tmp_path, "export", "--batch", "B", str(tmp_path / "out.jsonl"))

    answer = client.get("/v1/batches/B/results")

    assert answer.body == (tmp_path / "out.jsonl").read_bytes()
    assert len(answer.body.splitlines()) == 60
    assert answer.headers["content-type"] == "application/x-ndjson"


def test_an_error_is_logged_and_not_shown(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error may hold what only the operator may see."""

    def fails(*_args: object, **_kwargs: object) -> None:
        raise ValueError("secret of the ledger")

    monkeypatch.setattr(tasks, "read_batches", fails)
    client.post(POST, LINE)

    answer = client.get("/v1/batches/B")

    assert (answer.status, answer.json["error"]["type"]) == (500, "server_error")
    assert b"secret" not in answer.body
    assert "secret of the ledger" in caplog.text


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "OPTIONS"])
def test_other_methods_do_nothing(client: Client, method: str) -> None:
    client.post(POST, LINE)

    assert client.ask(method, "/v1/tasks?batch=B").status == 405
    assert client.ask(method, "/v1/batches/B").status == 405

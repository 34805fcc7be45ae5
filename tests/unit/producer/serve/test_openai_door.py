"""The door `/openai/v1`: files, batches and their errors, as OpenAI's clients expect them."""

import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.producer.ledger import openai_batches
from docllm.producer.serve.openai_door import FileLoads
from tests.support.commands import run
from tests.support.serving import GROUP, Answer, Client, served

BASE = "/openai/v1"
ENDPOINT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
TYPE = "multipart/form-data; boundary=B"


def line(key: str, **more: object) -> bytes:
    return (
        json.dumps(
            {"custom_id": key, "method": "POST", "url": ENDPOINT, "body": BODY} | more
        ).encode()
        + b"\n"
    )


def part(name: str, value: bytes, *, filename: str | None = None) -> bytes:
    named = f'name="{name}"' + ("" if filename is None else f'; filename="{filename}"')
    return b"--B\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % (named.encode(), value)


def form(content: bytes, purpose: str = "batch") -> bytes:
    return (
        part("purpose", purpose.encode()) + part("file", content, filename="a.jsonl") + b"--B--\r\n"
    )


def upload(client: Client, content: bytes) -> str:
    answer = client.post(f"{BASE}/files", form(content), Content_Type=TYPE)
    assert answer.status == 200, answer
    return str(answer.json["id"])


def create(client: Client, **given: object) -> Answer:
    asked = {"endpoint": ENDPOINT, "completion_window": "24h"} | given
    return client.post(f"{BASE}/batches", json.dumps(asked).encode())


def loaded(client: Client, batch_id: str) -> Any:
    """Return a batch once its file is loaded or refused."""
    while (batch := client.get(f"{BASE}/batches/{batch_id}").json)["status"] == "validating":
        pass
    return batch


def batch_of(client: Client, content: bytes, **given: object) -> Any:
    """Upload a file, make a batch of it, and return the batch once it is loaded."""
    return loaded(client, create(client, input_file_id=upload(client, content), **given).json["id"])


def files(folder: Path) -> list[str]:
    """Return the names in the folder of uploaded files."""
    path = folder / "docllm-data" / "files"
    return [each.name for each in path.iterdir()] if path.exists() else []


def test_a_file_is_kept_listed_read_and_deleted(client: Client, tmp_path: Path) -> None:
    file_id = upload(client, line("a"))

    shown = client.get(f"{BASE}/files/{file_id}").json
    assert shown == client.get(f"{BASE}/files").json["data"][0]
    assert (shown["bytes"], shown["filename"], shown["purpose"]) == (
        len(line("a")),
        "a.jsonl",
        "batch",
    )
    assert shown["expires_at"] - shown["created_at"] == 30 * 86_400
    assert client.get(f"{BASE}/files/{file_id}/content").body == line("a")
    gone = client.ask("DELETE", f"{BASE}/files/{file_id}")
    assert gone.json == {"id": file_id, "object": "file", "deleted": True}
    for path in (f"/files/{file_id}", f"/files/{file_id}/content"):
        answer = client.get(BASE + path)
        assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")
    assert client.ask("DELETE", f"{BASE}/files/{file_id}").status == 404
    assert files(tmp_path) == []


def test_files_come_in_pages(client: Client) -> None:
    ids = [upload(client, line("a")) for _ in range(3)]

    newest = client.get(f"{BASE}/files?limit=2").json
    assert [file["id"] for file in newest["data"]] == [ids[2], ids[1]]
    assert (newest["first_id"], newest["last_id"], newest["has_more"]) == (ids[2], ids[1], True)
    rest = client.get(f"{BASE}/files?limit=2&after={ids[1]}").json
    assert ([file["id"] for file in rest["data"]], rest["has_more"]) == ([ids[0]], False)
    oldest = client.get(f"{BASE}/files?order=asc&limit=1").json
    assert oldest["first_id"] == ids[0]
    assert client.get(f"{BASE}/files?purpose=batch_output").json["data"] == []
    for wrong in ("limit=0", "limit=x", "limit=10001", f"after=file-{'0' * 32}"):
        answer = client.get(f"{BASE}/files?{wrong}")
        assert (answer.status, answer.json["error"]["param"]) == (400, wrong.partition("=")[0])


@pytest.mark.parametrize(
    ("body", "type_", "param"),
    [
        (form(line("a"), "fine-tune"), TYPE, "purpose"),
        (part("file", b"x", filename="a") + b"--B--\r\n", TYPE, "purpose"),
        (part("purpose", b"batch") + b"--B--\r\n", TYPE, "file"),
        (part("purpose", b"batch") + part("file", b"x") + b"--B--\r\n", TYPE, "file"),
        (
            part("purpose", b"batch") + 2 * part("file", b"x", filename="a") + b"--B--\r\n",
            TYPE,
            None,
        ),
        (form(b"\x1f\x8b\x08"), TYPE, "file"),
        (form(line("a")), "multipart/form-data", None),
        (form(line("a")), "application/json", "file"),
        (form(line("a")), "", "file"),
        (b"no part at all", TYPE, None),
        (20 * part("n", b"x") + form(line("a")), TYPE, None),
        (part("n", b"x" * 100_000) + form(line("a")), TYPE, None),
        (part("expires_after[seconds]", b"1") + form(line("a")), TYPE, "expires_after[seconds]"),
    ],
)
def test_an_upload_that_is_none_keeps_nothing(
    client: Client, tmp_path: Path, body: bytes, type_: str, param: str | None
) -> None:
    """Each is told what is wrong, in the form of OpenAI's errors."""
    answer = client.post(f"{BASE}/files", body, Content_Type=type_)

    error = answer.json["error"]
    assert (answer.status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert files(tmp_path) == []


def test_a_client_that_vanishes_while_it_uploads_leaves_nothing(
    client: Client, tmp_path: Path
) -> None:
    with socket.create_connection(("127.0.0.1", client.port), 30) as connection:
        head = f"POST {BASE}/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: {TYPE}\r\n"
        body = form(line("a"))
        connection.sendall(f"{head}Content-Length: {len(body) + 1}\r\n\r\n".encode() + body)

    upload(client, line("b"))
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "%2e%2e",
        "..%2F..%2Fledger.sqlite",
        "file-..%2F..",
        "file-%00",
        "none",
        "file-output-x",
    ],
)
def test_an_id_is_never_a_path(client: Client, name: str) -> None:
    upload(client, line("a"))

    assert client.get(f"{BASE}/files/{name}").status == 404
    assert client.get(f"{BASE}/files/{name}/content").status == 404
    assert client.ask("DELETE", f"{BASE}/files/{name}").status in {404, 405}
    assert client.get(f"{BASE}/batches/{name}").status == 404


def test_a_batch_is_loaded_as_a_batch_of_docllm(client: Client, tmp_path: Path) -> None:
    """Its window is the deadline of its tasks, and it closes by itself."""
    made = create(client, input_file_id=upload(client, line("a") + line("b")), metadata={"k": "v"})
    assert (made.status, made.json["status"]) == (200, "validating")
    batch = loaded(client, made.json["id"])

    assert batch["status"] == "in_progress"
    assert batch["request_counts"] == {"total": 2, "completed": 0, "failed": 0}
    assert (batch["metadata"], batch["endpoint"]) == ({"k": "v"}, ENDPOINT)
    assert batch["expires_at"] - batch["created_at"] == 86_400
    assert (batch["output_file_id"], batch["error_file_id"]) == (None, None)
    assert client.get(f"/v1/batches/openai-{batch['id']}").json["counts"]["total"] == 2
    with closing(sqlite3.connect(tmp_path / "docllm-data" / "ledger.sqlite")) as ledger:
        (left_s,) = ledger.execute(
            "SELECT DISTINCT unixepoch(expires_at) - unixepoch(created_at) FROM task"
        ).fetchone()
    assert 86_300 < left_s <= 86_400


@pytest.mark.parametrize(
    ("content", "code", "number", "words"),
    [
        (line("a") + b'{"custom_id":"b"}\n', "invalid_line", 2, "body is missing"),
        (line("a") + line("a", url="/v1/embeddings"), "invalid_line", 2, "chat completions"),
        (line("a") + line("a", metadata={}), "invalid_line", 2, "already with other content"),
        (b"nothing", "invalid_line", 1, "is not JSON"),
        (b"", "empty_file", None, "no task line"),
        (b"%PDF-1.7", "invalid_file", None, "PDF"),
    ],
)
def test_a_file_with_a_bad_line_fails_as_a_whole(
    client: Client, content: bytes, code: str, number: int | None, words: str
) -> None:
    """Nothing of it is loaded, and the batch says which line is bad."""
    batch = batch_of(client, content)

    (error,) = batch["errors"]["data"]
    assert (batch["status"], error["code"], error["line"]) == ("failed", code, number)
    assert words in error["message"]
    assert "--batch" not in error["message"]
    assert batch["failed_at"] >= batch["created_at"]
    assert (batch["cancelled_at"], batch["cancelling_at"]) == (None, None)
    assert batch["request_counts"]["total"] == 0
    assert client.post(f"{BASE}/batches/{batch['id']}/cancel").status == 409


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"input_file_id": "file-none"}, "input_file_id"),
        ({"input_file_id": 1}, "input_file_id"),
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"completion_window": None}, "completion_window"),
        ({"completion_window": "31d"}, "completion_window"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": ["a"]}, "metadata"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
    ],
)
def test_a_batch_that_cannot_be_is_not_made(
    client: Client, given: dict[str, object], param: str
) -> None:
    answer = create(client, **{"input_file_id": upload(client, line("a")), **given})

    assert (answer.status, answer.json["error"]["param"]) == (400, param)
    assert client.get(f"{BASE}/batches").json["data"] == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b" " * 100_000])
def test_a_body_that_is_no_object_makes_no_batch(client: Client, body: bytes) -> None:
    assert client.post(f"{BASE}/batches", body).status in {400, 413}


def test_batches_come_in_pages(client: Client, tmp_path: Path) -> None:
    """Those of this door alone."""
    ids = [batch_of(client, line("a"))["id"] for _ in range(3)]
    client.post("/v1/tasks?batch=other", line("a"))
    (tmp_path / "openai-batch_mine.jsonl").write_bytes(line("a"))
    run(tmp_path, "load", str(tmp_path / "openai-batch_mine.jsonl"))

    newest = client.get(f"{BASE}/batches?limit=2").json
    assert [batch["id"] for batch in newest["data"]] == [ids[2], ids[1]]
    assert newest["has_more"]
    rest = client.get(f"{BASE}/batches?after={ids[1]}").json
    assert ([batch["id"] for batch in rest["data"]], rest["has_more"]) == ([ids[0]], False)
    assert client.get(f"{BASE}/batches?after=none").json["error"]["param"] == "after"
    assert client.get(f"{BASE}/batches?limit=101").json["error"]["param"] == "limit"
    assert client.get(f"{BASE}/batches/batch_mine").status == 404


def test_a_batch_is_cancelled(client: Client) -> None:
    """Its error file has what was not run; a second cancel is refused."""
    batch_id = batch_of(client, line("a") + line("b"))["id"]

    batch = client.post(f"{BASE}/batches/{batch_id}/cancel").json

    assert (batch["status"], batch["output_file_id"]) == ("cancelled", None)
    assert batch["cancelled_at"] >= batch["cancelling_at"]
    view = f"{BASE}/files/{batch['error_file_id']}"
    lines = [orjson.loads(each) for each in client.get(f"{view}/content").body.splitlines()]
    assert [(each["custom_id"], each["error"]["code"]) for each in lines] == [
        ("a", "cancelled"),
        ("b", "cancelled"),
    ]
    file = client.get(view).json
    assert (file["bytes"], file["purpose"]) == (
        len(client.get(f"{view}/content").body),
        "batch_output",
    )
    assert client.ask("DELETE", view).status == 409
    assert client.post(f"{BASE}/batches/{batch_id}/cancel").status == 409
    assert client.get(f"{BASE}/files/file-output-{'0' * 32}").status == 404


def test_a_file_stays_while_a_batch_is_loaded_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a server that starts later goes on with the batch."""

    async def never(*_args: object) -> None:
        pass

    with monkeypatch.context() as stopped:
        stopped.setattr(FileLoads, "_load", never)
        with served(tmp_path) as client:
            file_id = upload(client, line("a"))
            batch_id = create(client, input_file_id=file_id).json["id"]
            refused = client.ask("DELETE", f"{BASE}/files/{file_id}")
            assert (refused.status, batch_id in refused.json["error"]["message"]) == (409, True)

    with served(tmp_path) as client:
        assert loaded(client, batch_id)["request_counts"]["total"] == 1
        assert client.ask("DELETE", f"{BASE}/files/{file_id}").status == 200
        assert loaded(client, batch_id)["status"] == "in_progress"


def test_a_batch_waits_for_a_file_that_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server with another folder does not fail what it cannot see."""
    facts = {"input_file_id": f"file-{'0' * 32}", "endpoint": ENDPOINT, "completion_window": "1h"}
    (tmp_path / "x.jsonl").write_bytes(line("a"))
    run(tmp_path, "load", str(tmp_path / "x.jsonl"))
    with closing(sqlite3.connect(tmp_path / "docllm-data" / "ledger.sqlite")) as ledger, ledger:
        options = json.dumps({"openai": facts | {"window_s": 3600}}, separators=(",", ":"))
        ledger.execute(
            "INSERT INTO batch (name, group_name, options) VALUES (?, ?, ?)",
            (f"{openai_batches.PREFIX}batch_1", GROUP, options),
        )

    with served(tmp_path) as client:
        while "waits for its file" not in caplog.text:
            assert client.get("/livez").status == 200
        assert client.get(f"{BASE}/batches/batch_1").json["status"] == "validating"
        assert client.post(f"{BASE}/batches/batch_1/cancel").json["status"] == "cancelled"

"""A gateway with headers of its own and another form of structured output, in whole programs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

from tests.integration.support.deployment import Deployment

Settings = Callable[[Deployment, str], None]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OURS, THEIRS = "azure-secret-1", "org-secret-2"


class Gateway(BaseHTTPRequestHandler):
    """Takes JSON objects, no JSON schemas; repeats the headers when it is told to refuse."""

    calls: list[tuple[dict[str, str], dict[str, Any]]]  # headers and body of each call

    def do_POST(self) -> None:
        """Answer one call."""
        body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.calls.append((headers, body))
        if body.get("response_format", {}).get("type") == "json_schema":
            self._reply(500, {"error": {"message": "1 validation error: response_format.type"}})
        elif "refuse" in body["messages"][0]["content"]:
            given = headers.get("api-key") or headers.get("openai-organization")
            self._reply(400, {"error": {"message": f"not with {given}"}})
        else:
            message = {"role": "assistant", "content": '{"n": 1}'}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._reply(200, {"model": body["model"], "choices": [choice]})

    def _reply(self, status: int, value: Any) -> None:
        raw = orjson.dumps(value)
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


@contextmanager
def gateway() -> Iterator[tuple[str, list[tuple[dict[str, str], dict[str, Any]]]]]:
    """Run a gateway; yield its address and its calls."""
    calls: list[tuple[dict[str, str], dict[str, Any]]] = []
    handler = type("Serving", (Gateway,), {"calls": calls})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", calls
        finally:
            server.shutdown()
            thread.join()


def configured(url: str, structured: str) -> str:
    return f"""
        [llm]
        base_url = "{url}"
        model = "m"
        {structured}
        headers = {{ "api-key" = "{OURS}" }}
        [routes.theirs]
        structured = "none"
        [routes.theirs.headers]
        OpenAI-Organization = "{THEIRS}"
    """


def test_each_route_sends_its_headers_and_no_screen_or_table_shows_them(
    embedded: Deployment, settings: Settings
) -> None:
    """`check` finds the form of structured output, and the agent then works with it."""
    with gateway() as (url, calls):
        settings(embedded, configured(url, ""))
        checked = embedded.run("producer", "check")
        assert 'write structured = "json_object" under [llm]' in checked.out
        assert "WARNING" not in checked.out.partition("route theirs")[2]
        del calls[:]

        settings(embedded, configured(url, 'structured = "json_object"'))
        lines: list[dict[str, Any]] = [
            {"id": "a", "prompt": "one", "schema": SCHEMA},
            {"id": "b", "prompt": "two", "schema": SCHEMA, "model": "theirs"},
            {"id": "c", "prompt": "refuse"},
            {"id": "d", "prompt": "refuse", "model": "theirs"},
        ]
        embedded.producer("load", str(embedded.write_lines(lines)))
        (agent,) = embedded.until_done()

    sent = {
        (body["model"], headers.get("api-key"), headers.get("openai-organization"))
        for headers, body in calls
    }
    assert sent == {("m", OURS, None), ("theirs", None, THEIRS)}
    assert not [headers for headers, _ in calls if "authorization" in headers]
    assert {body["messages"][0]["content"]: body.get("response_format") for _, body in calls} == {
        "one": {"type": "json_object", "schema": SCHEMA},
        "two": None,
        "refuse": None,
    }
    exported = [orjson.loads(line) for line in embedded.producer("export").splitlines()]
    assert [line["result"] for line in exported] == [{"n": 1}, {"n": 1}, None, None]
    assert [line["error"] and line["error"]["message"] for line in exported[2:]] == [
        "400: not with ***"
    ] * 2
    for said in (checked.out, checked.err, agent.err, embedded.producer("status", "--json")):
        assert OURS not in said
        assert THEIRS not in said

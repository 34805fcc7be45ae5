"""Documents by `https://`, from a line to the prompt, by programs as a user starts them."""

import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.support.deployment import Deployment
from tests.servers.secure import Authority

TEXT = b"Sales rose in the north. Costs fell."


@dataclass
class Site:
    """A server of documents with a certificate; `paths` has what was asked of it."""

    port: int
    ca: Path
    paths: list[str] = field(default_factory=list)

    def uri(self, path: str) -> str:
        return f"https://localhost:{self.port}{path}"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Serve documents at localhost; `/docs/moved` leads out of `/docs/`."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            moved = self.path == "/docs/moved"
            self.send_response(302 if moved else 404 if "gone" in self.path else 200)
            if moved:
                self.send_header("Location", "/secret/a.txt")
            self.send_header("Content-Length", str(len(TEXT)))
            self.end_headers()
            self.wfile.write(TEXT)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep quiet."""

    authority = Authority(tmp_path / "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("web", "localhost"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Site(server.server_port, authority.ca, paths)
    server.shutdown()
    server.server_close()
    thread.join()


def test_documents_of_an_own_server(embedded: Deployment, site: Site) -> None:
    """An operator allows a prefix and a network; what lies elsewhere is dead without a request."""
    llm = embedded.llm("--latency", "0")
    (embedded.folder / "docllm.toml").write_text(
        f'[documents]\nallow = ["{site.uri("/docs/")}"]\nprivate = ["127.0.0.0/8", "::1/128"]\n'
    )
    (embedded.folder / "docllm.toml").chmod(0o600)
    uris = {
        "good": site.uri("/docs/a.txt?sig=hidden"),
        "changed": site.uri("/docs/b.txt"),
        "gone": site.uri("/docs/gone.txt?sig=hidden"),
        "moved": site.uri("/docs/moved"),
        "other": site.uri("/secret/a.txt"),
        "plain": f"http://localhost:{site.port}/docs/a.txt",
    }
    lines = [
        {"id": name, "prompt": "Sum up: {document}", "input": {"uri": uri}}
        for name, uri in uris.items()
    ]
    lines[1]["input"] |= {"size": 5}  # type: ignore[operator]
    loaded = embedded.run("producer", "load", str(embedded.write_lines(lines)))
    assert "line 6: input.uri is not the URI of a document" in loaded.err
    embedded.environ |= {"SSL_CERT_FILE": str(site.ca), "HTTPS_PROXY": "http://127.0.0.1:9"}

    embedded.until_done()

    ends = {task.name.partition("/")[2]: task.death for task in embedded.ledger.tasks()}
    classes = {name: death.error_class if death else "" for name, death in ends.items()}
    assert classes == {
        "good": "",
        "changed": "DOCUMENT_CHANGED",
        **dict.fromkeys(("gone", "moved", "other"), "DOCUMENT_REFUSED"),
    }
    assert len(llm.calls()) == 1
    assert sorted(site.paths) == sorted(
        ["/docs/a.txt?sig=hidden", "/docs/b.txt", "/docs/gone.txt?sig=hidden", "/docs/moved"]
    )
    assert "hidden" not in embedded.producer("dead", "list")


def test_without_a_network_this_machine_is_closed(embedded: Deployment, site: Site) -> None:
    """A prefix alone opens no server of the own network, and the error says how to."""
    embedded.llm("--latency", "0")
    embedded.environ |= {
        "DOCLLM_DOCUMENT_ALLOW": site.uri("/"),
        "SSL_CERT_FILE": str(site.ca),
    }
    line = {"id": "a", "prompt": "{document}", "input": {"uri": site.uri("/a.txt")}}
    embedded.producer("load", str(embedded.write_lines([line])))

    embedded.until_done()

    (task,) = embedded.ledger.tasks()
    assert task.death is not None
    assert task.death.error_class == "DOCUMENT_REFUSED"
    assert "DOCLLM_DOCUMENT_PRIVATE" in embedded.producer("dead", "show", "a")
    assert site.paths == []

"""Chromium shows each page of the site on a phone and on a desk: nothing is cut, raw or broken."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.conftest import absent
from tests.servers.process import ServerMissingError, program

SITE = Path(__file__).parents[2] / "site"
MEASURE = Path(__file__).with_name("measure.html")
PATIENCE_S = 300


class Handler(SimpleHTTPRequestHandler):
    """Serves the site, the page that measures the others, and takes what it posts."""

    measured: "Queue[bytes]" = Queue()

    def do_GET(self) -> None:
        """Answer with the measuring page, with the list of pages, or with a file of the site."""
        match self.path:
            case "/measure.html":
                self._answer(MEASURE.read_bytes(), "text/html")
            case "/pages.json":
                pages = [f"/{page.relative_to(SITE)}" for page in sorted(SITE.rglob("*.html"))]
                self._answer(json.dumps(pages).encode(), "application/json")
            case _:
                super().do_GET()

    def do_POST(self) -> None:
        """Take what was measured."""
        self.measured.put(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(b"", "text/plain")

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def served() -> Iterator[str]:
    """Serve the site on a free port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def browser(url: str, folder: Path) -> Iterator[None]:
    """Let Chromium show an address."""
    try:
        chromium = program("chromium", package="chromium")
    except ServerMissingError as error:
        absent(str(error))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    shown = subprocess.Popen(
        [chromium, *options, f"--user-data-dir={folder}", url],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        shown.terminate()
        shown.wait()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what Chromium measured on each page, at each width."""
    assert SITE.is_dir(), "run: make site"
    with served() as url, browser(f"{url}/measure.html", tmp_path_factory.mktemp("chromium")):
        measured: list[dict[str, Any]] = json.loads(Handler.measured.get(timeout=PATIENCE_S))
    assert measured
    return measured


def test_no_page_scrolls_sideways(pages: list[dict[str, Any]]) -> None:
    """A page is as wide as its window; wide code scrolls in its own box."""
    wide = [page for page in pages if page["text_px"] > page["width"]]
    assert [(page["page"], page["width"]) for page in wide] == []


def test_no_table_is_cut(pages: list[dict[str, Any]]) -> None:
    """Each column of a table is within the window."""
    cut = [(page["page"], page["width"], page["cut_tables"]) for page in pages]
    assert [table for table in cut if table[-1]] == []


def test_each_diagram_is_drawn(pages: list[dict[str, Any]]) -> None:
    """No diagram is shown as the text that describes it."""
    assert [page["page"] for page in pages if page["undrawn"]] == []


def test_each_image_is_shown(pages: list[dict[str, Any]]) -> None:
    """Each image is there and can be read."""
    assert [page["broken_images"] for page in pages if page["broken_images"]] == []


def test_each_link_leads_to_its_place(pages: list[dict[str, Any]]) -> None:
    """Each link within the site leads to a page that exists, and to a place in it."""
    places = {page["page"]: {"", *page["names"]} for page in pages}
    broken = {
        (page["page"], link)
        for page in pages
        for link in page["links"]
        if (target := urlsplit(link)).path.endswith(".html")
        and unquote(target.fragment) not in places.get(target.path, ())
    }
    assert broken == set()

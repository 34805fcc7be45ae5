"""Documents of every kind through whole programs: load, converting agents, export."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.integration.support.deployment import Deployment
from tests.support.bombs import bombs
from tests.support.made_documents import made_docx, made_pdf

PROMPT = ("--prompt", "Answer: {document}")
# Some bombs are converted until their time is over.
EACH = 1 if os.environ.get("DOCLLM_TEST_LONG") else 8


def test_documents_of_every_kind_are_answered(embedded: Deployment) -> None:
    """A folder with files of any kind is loaded at once; names say nothing about the kind."""
    embedded.llm("--latency", "0")
    folder = embedded.folder / "in"
    folder.mkdir()
    texts = {
        "a.txt": "word in UTF-8",
        "b.txt": "word in UTF-16",
        "c.txt": "Wörter in der Kodierung von Windows: schöne Grüße",
        "d.bin": "word in a PDF",
        "e.pdf": "word in a DOCX",
        "f.doc": "word in a page",
        "j.eml": "Subject: word in a mail übrig",
        "k.rtf": "word in RTF",
        "l.txt": "言葉",
        "m.docx": "word beside another text",
    }
    contents = {
        "a.txt": texts["a.txt"].encode(),
        "b.txt": texts["b.txt"].encode("utf-16"),
        "c.txt": texts["c.txt"].encode("cp1252"),
        "d.bin": made_pdf([texts["d.bin"]]),
        "e.pdf": made_docx(texts["e.pdf"]),
        "f.doc": f"<!doctype html><script>1</script><p>{texts['f.doc']}".encode(),
        "g.docx": made_pdf([], []),
        "h.txt": b"%PDF-1.4 broken",
        "i.pdf": b"\x89PNG\r\n\x1a\n\0",
        "j.eml": b"Subject: word in a mail\nMIME-Version: 1.0\n"
        b"Content-Transfer-Encoding: base64\n\nw7xicmln",
        "k.rtf": b"{\\rtf1 word in RTF}",
        "l.txt": texts["l.txt"].encode("iso2022_jp"),
        "m.docx": made_docx(texts["m.docx"], files={"word/document2.xml": b"<t>more</t>"}),
        "n.pdf": b"<!doctype html><h1>404 Not Found",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)

    loaded = embedded.run("producer", "load", "--documents", "in", *PROMPT)
    embedded.until_done()

    assert loaded.code == 1
    assert "n.pdf: is HTML, though its name ends in .pdf; it may be a server's" in loaded.err
    assert "i.pdf: is a PNG image, which is not read; convert it to text, PDF or DOCX" in loaded.err
    done = embedded.producer("export", "--batch", "in")
    lines = {line["id"]: line for line in map(json.loads, done.splitlines())}
    assert {
        key: line["result"] for key, line in lines.items() if line["status"] == "succeeded"
    } == texts
    assert {key: line["omitted"] for key, line in lines.items() if "omitted" in line} == {
        "c.txt": ["encoding guessed: cp1252; save as UTF-8 to be certain"],
        "m.docx": ["word/document2.xml"],
    }
    for key, problem in (("g.docx", "no text in them"), ("h.txt", "is a broken PDF")):
        assert lines[key]["status"] == "dead"
        assert problem in str(lines[key]["error"])
        assert key in str(lines[key]["error"])


def put_in(deployment: Deployment) -> Path:
    """Put documents that need a conversion into a new folder of an installation."""
    folder = deployment.folder / "in"
    folder.mkdir()
    (folder / "a.docx").write_bytes(
        made_docx("word in a DOCX", files={"word/document2.xml": b"<t>more</t>"})
    )
    (folder / "b.pdf").write_bytes(made_pdf(["word in a PDF"]))
    (folder / "c.txt").write_text("word")
    return folder


def test_converted_at_load_no_agent_needs_the_files(deployment: Deployment) -> None:
    """The files are gone when agents run; a second load of the same files finds all loaded.

    On Kafka, agents have no folder, and a load without --convert says so.
    """
    deployment.llm("--latency", "0")
    folder, load = put_in(deployment), ("--documents", "in", *PROMPT)
    if deployment.kafka:
        refused = deployment.run("producer", "load", *load, "--group", deployment.group, "--strict")
        assert refused.code == 1, refused
        assert "b.pdf: is PDF that an agent must read, and agents may read no folder" in refused.err

    first = deployment.producer("load", *load, "--convert", "--json")
    again = deployment.producer("load", *load, "--convert")
    shutil.rmtree(folder)
    deployment.until_done()

    (warning,) = json.loads(first)["warnings"]
    assert warning.startswith("1 document converted without parts that are not read: a.docx (word/")
    assert again == "batch in: nothing new, 3 loaded already\n"
    done = deployment.producer("export", "--batch", "in")
    lines = {line["id"]: line for line in map(json.loads, done.splitlines())}
    assert {key: line["result"] for key, line in lines.items()} == {
        "a.docx": "word in a DOCX",
        "b.pdf": "word in a PDF",
        "c.txt": "word",
    }
    assert lines["a.docx"]["omitted"] == ["word/document2.xml"]


def test_a_load_tells_what_its_documents_need(embedded: Deployment) -> None:
    """An extra that is not installed, before the agents; the estimate counts text, not bytes."""
    put_in(embedded)
    without = embedded.folder / "without"
    without.mkdir()
    (without / "pypdf.py").write_text("raise ImportError")
    load = ("load", "--documents", "in", *PROMPT, "--dry-run", "--json")
    path = os.pathsep.join(filter(None, (str(without), embedded.environ.get("PYTHONPATH"))))

    with_all = json.loads(embedded.run("producer", *load).out)
    lacking = json.loads(embedded.run("producer", *load, PYTHONPATH=path).out)

    size = sum(file.stat().st_size for file in (embedded.folder / "in").iterdir())
    assert with_all["warnings"] == []
    assert with_all["estimate"]["tokens_in"] < lacking["estimate"]["tokens_in"] < size / 2
    (warning,) = lacking["warnings"]
    assert warning.startswith("1 document (1 PDF) cannot be read by agents of this installation")


@pytest.mark.timeout(1500)
def test_bombs_are_dead_letters_and_harm_nobody(embedded: Deployment) -> None:
    """Each bomb is dead with its name and the reason; the agent stays alive, small and in time."""
    embedded.llm("--latency", "0")
    folder = embedded.folder / "in"
    folder.mkdir()
    texts = {f"neighbour {number}": f"word {number}" for number in range(12)}
    lines = []
    for number, (name, content) in enumerate(list(bombs())[::EACH]):
        (folder / name).write_bytes(content)
        lines.append(name)
        if number % 5 == 0:
            neighbour = f"neighbour {number // 5}"
            (folder / neighbour).write_bytes(made_pdf([texts[neighbour]]))
            lines.append(neighbour)
    path = embedded.write_lines(
        [
            {"id": name, "prompt": "Answer: {document}", "input": {"uri": (folder / name).as_uri()}}
            for name in lines
        ]
    )
    embedded.producer("load", str(path))
    agent = embedded.agent()

    def ended() -> bool:
        counts = embedded.ledger.counts()
        return counts["succeeded"] + counts["dead"] == len(lines)

    embedded.until(ended, "every task to end", timeout_s=1200)

    (most_kb,) = re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{agent.pid}/status").read_text())
    done = embedded.producer("export", "--batch", path.stem)
    results = {line["id"]: line for line in map(json.loads, done.splitlines())}
    for name in texts.keys() & set(lines):
        assert results[name]["result"] == texts[name]
    errors = {name: results[name]["error"] for name in lines if name not in texts}
    assert len(errors) > 50 // EACH
    for name, error in errors.items():
        assert error["code"] == "DOCUMENT_REFUSED", (name, error)
        assert (folder / name).as_uri() in error["message"]
    assert "silent" not in agent.err
    assert int(most_kb) < 500_000

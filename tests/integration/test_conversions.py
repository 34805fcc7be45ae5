"""Documents of every kind through whole programs: load, converting agents, export."""

import json

from tests.integration.deployment import Deployment
from tests.support.made_documents import made_docx, made_pdf

PROMPT = ("--prompt", "Answer: {document}")


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
        "f.docx": "word in a page",
    }
    contents = {
        "a.txt": texts["a.txt"].encode(),
        "b.txt": texts["b.txt"].encode("utf-16"),
        "c.txt": texts["c.txt"].encode("cp1252"),
        "d.bin": made_pdf([texts["d.bin"]]),
        "e.pdf": made_docx(texts["e.pdf"]),
        "f.docx": f"<!doctype html><script>1</script><p>{texts['f.docx']}".encode(),
        "g.docx": made_pdf([], []),
        "h.txt": b"%PDF-1.4 broken",
        "i.pdf": b"\x89PNG\r\n\x1a\n\0",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)

    loaded = embedded.run("producer", "load", "--documents", "in", *PROMPT)
    embedded.until_done()

    assert loaded.code == 1
    assert "i.pdf: is a PNG image, which is not read; convert it to text, PDF or DOCX" in loaded.err
    done = embedded.producer("export", "--batch", "in")
    lines = {line["id"]: line for line in map(json.loads, done.splitlines())}
    assert {
        key: line["result"] for key, line in lines.items() if line["status"] == "succeeded"
    } == texts
    for key, problem in (("g.docx", "no text in them"), ("h.txt", "is a broken PDF")):
        assert lines[key]["status"] == "dead"
        assert problem in str(lines[key]["error"])
        assert key in str(lines[key]["error"])

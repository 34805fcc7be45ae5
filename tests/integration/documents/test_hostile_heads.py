"""Files that are made to stop who looks at their first bytes stop nobody."""

import json
from pathlib import Path

from tests.integration.support.deployment import Deployment

PROMPT = ("--prompt", "Sum up: {document}")
HEADS = {
    "comments": "<!---->" * 60,
    "many comments": "<!---->" * 9_400,
    "open comments": "<!--" * 16_000,
    "heads": "<?xml " * 10_000,
    "blanks": " " * 60_000,
    "declarations": "<html>" + "<meta " * 400 + "charset=" + " " * 60_000,
    "quotes": "<html>" + "<meta charset='" * 4_000,
}
ENCODINGS = ("utf-8", "utf-16", "utf-32", "cp1252")


def made(folder: Path) -> set[str]:
    """Write a file of each kind in each encoding, and return their names."""
    folder.mkdir()
    for name, head in HEADS.items():
        for encoding in ENCODINGS:
            # The last letters make the text one of this encoding.
            (folder / f"{name} {encoding}.txt").write_bytes(f"{head}>Grüße".encode(encoding))
    return {path.name for path in folder.iterdir()}


def test_a_folder_of_hostile_files_is_loaded_and_answered(embedded: Deployment) -> None:
    """A file of 425 bytes once stopped `load`, and each agent that read it, for ever."""
    embedded.llm("--latency", "0")
    names = made(embedded.folder / "in")
    embedded.environ |= {"DOCLLM_DOCUMENT_ROOTS": str(embedded.folder)}

    tried = embedded.run("producer", "load", "--documents", "in", *PROMPT, "--dry-run")
    embedded.producer("load", "--documents", "in", *PROMPT, "--by-uri")
    embedded.until_done()

    assert tried.code == 0, tried
    lines = map(json.loads, embedded.producer("export", "--batch", "in").splitlines())
    assert {line["id"] for line in lines if line["status"] == "succeeded"} == names

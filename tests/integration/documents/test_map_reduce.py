"""Documents that are longer than their model takes, through whole programs."""

import re
from collections import Counter

import orjson

from tests.integration.support.deployment import BATCH, Deployment, task_line

SETTINGS = """
[llm]
model = "rehearsal"
context_tokens = 2000

[prices.rehearsal]
input_per_mtok = 1.0
output_per_mtok = 1.0
"""
SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}


def report(number: int, paragraphs: int) -> str:
    return "\n\n".join(
        f"Branch {number} sold {line} chairs. " + "Sales rose. " * 20 for line in range(paragraphs)
    )


def test_a_folder_of_long_documents_becomes_one_answer_each(embedded: Deployment) -> None:
    """Each document is one task, whatever its length, and pays for all of its calls.

    Calls that the provider refuses for now are made again within the attempt.
    """
    llm = embedded.llm("--latency", "0", "--faults", "429=0.1,500=0.05")
    (embedded.folder / "docllm.toml").write_text(SETTINGS)
    (embedded.folder / "docllm.toml").chmod(0o600)
    (embedded.folder / "schema.json").write_bytes(orjson.dumps(SCHEMA))
    files = embedded.folder / BATCH
    files.mkdir()
    for number, paragraphs in enumerate((1, 40, 200)):
        (files / f"{number}.txt").write_text(report(number, paragraphs))

    loaded = embedded.run(
        "producer", "load", "--documents", BATCH, "--type", "map-reduce", "--by-uri",
        "--prompt", "Sum up: {document}", "--schema", "schema.json", "--group", embedded.group,
    )  # fmt: skip
    embedded.until_done()
    lines = [*map(orjson.loads, embedded.producer("export", "--batch", BATCH).splitlines())]

    assert loaded.code == 0, loaded
    assert "longer than the model takes" not in loaded.err
    assert [(line["id"], line["status"], line["result"]) for line in lines] == [
        (f"{number}.txt", "succeeded", {"total": 0}) for number in range(3)
    ]
    calls = Counter(call.name.rpartition("/")[2] for call in llm.calls())
    assert calls["0.txt"] < calls["1.txt"] < 16 < calls["2.txt"]
    sent = [line["tokens_in"] for line in lines]
    assert sent[0] < 2000 < sent[1] < sent[2]
    assert [line["cost"] for line in lines] == [
        (line["tokens_in"] + line["tokens_out"]) / 1e6 for line in lines
    ]


def test_a_part_that_fails_is_named_on_the_screen(embedded: Deployment) -> None:
    """The task is dead, and `show` says which part it was."""
    embedded.llm("--latency", "0", "--faults", "400=1")
    (embedded.folder / "docllm.toml").write_text(SETTINGS)
    (embedded.folder / "docllm.toml").chmod(0o600)
    long = task_line(0, type="map-reduce", prompt="{document}", input={"text": report(0, 40)})
    embedded.producer("load", str(embedded.write_lines([long])))

    embedded.until_done()

    assert re.search(r"part \d+ of \d+: ", embedded.producer("dead", "show", "t0"))

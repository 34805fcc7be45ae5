"""Results outside the ledger, through whole programs: in folders and in an object store."""

from pathlib import Path

import orjson
import pytest
from sqlalchemy import select

from docllm.schemas.ledger.tables import task_result
from docllm.schemas.task.result.codec import POINTER
from tests.integration.support.deployment import Deployment, task_line
from tests.servers import ObjectStore

TASKS = 6


def exported(deployment: Deployment, code: int = 0) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in deployment.producer("export", code=code).splitlines()]


def codecs(deployment: Deployment) -> set[int]:
    return {row.codec for row in deployment.ledger._all(select(task_result.c.codec))}


def allowed_folder(deployment: Deployment) -> Path:
    """Return a folder below which agents may write."""
    folder = deployment.folder / "results"
    deployment.environ["DOCLLM_DOCUMENT_ALLOW"] = f"file://{folder}/"
    return folder


def test_results_go_to_folders_and_the_export_follows_them(embedded: Deployment) -> None:
    """A line's own folder wins over the batch's; a lost object costs its own result only."""
    folder = allowed_folder(embedded)
    folder.mkdir()
    llm = embedded.llm()
    lines = [task_line(number) for number in range(TASKS - 1)]
    lines.append(task_line(TASKS - 1, output_uri=f"file://{folder}/own/"))
    path = embedded.write_lines(lines)

    embedded.producer("load", str(path), "--output-uri", f"file://{folder}/out/")
    embedded.until_done()

    results = exported(embedded)
    files = sorted(folder.rglob("*.json"))
    assert codecs(embedded) == {POINTER}
    assert [line["output"] for line in results] == [
        f"file://{file}" for file in sorted(files, key=lambda file: file.name)
    ]
    for line, file in zip(results, sorted(files, key=lambda file: file.name), strict=True):
        written = orjson.loads(file.read_bytes())
        assert (written["id"], written["result"]) == (line["id"], line["result"])
        assert written["completion"]["choices"]
    assert [file.parent.name for file in files] == ["out"] * (TASKS - 1) + ["own"]
    assert len(llm.calls()) == TASKS

    altered, gone = files[1], files[2]
    altered.write_bytes(altered.read_bytes().replace(b'"id"', b'"ID"', 1))
    gone.unlink()
    done = embedded.run("producer", "export", "--group", embedded.group)
    lost = [orjson.loads(line) for line in done.out.splitlines()]
    assert done.code == 1
    assert "2 results could not be read" in done.err
    assert "its SHA-256 is another one" in done.err
    assert [line["error"] is None for line in lost] == [True, False, False, True, True, True]
    assert {line["error"]["code"] for line in lost if line["error"]} == {"UNREADABLE"}
    assert [line for line in lost if not line["error"]] == [
        line for number, line in enumerate(results) if number not in {1, 2}
    ]


def test_answers_wait_for_a_folder_that_is_away(embedded: Deployment) -> None:
    """The answers are kept and not paid for again, and no further call is made until then."""
    folder = allowed_folder(embedded)
    llm = embedded.llm()
    embedded.producer(
        "load",
        str(embedded.write_lines(task_line(number) for number in range(TASKS * 5))),
        "--output-uri",
        f"file://{folder}/",
    )
    agent = embedded.agent("--until-done", "--slots", "4")
    embedded.until(
        lambda: "OUTPUT_UNWRITABLE" in embedded.producer("status", "--json"),
        "an answer that cannot be written",
    )
    calls = len(llm.calls())
    assert not codecs(embedded)

    folder.mkdir()

    assert agent.wait(120) == 0, agent.tail()
    assert calls < TASKS * 5
    assert len(llm.calls()) == TASKS * 5
    assert {line["status"] for line in exported(embedded)} == {"succeeded"}
    assert len(list(folder.iterdir())) == TASKS * 5


def test_a_folder_that_is_not_allowed_costs_no_call(embedded: Deployment) -> None:
    """The dead letter names the setting."""
    llm = embedded.llm()
    path = embedded.write_lines([task_line(1)])
    embedded.producer("load", str(path), "--output-uri", f"file://{embedded.folder}/out/")

    embedded.until_done()

    (line,) = exported(embedded)
    assert line["error"] is not None
    assert "OUTPUT_REFUSED" in str(line["error"])
    assert "DOCLLM_DOCUMENT_ALLOW" in str(line["error"])
    assert not llm.calls()


@pytest.mark.parametrize("uri", ["/var/out/", "https://a.example/", "s3://b", "file:///a/../b"])
def test_a_uri_of_no_folder_is_refused_when_it_is_loaded(embedded: Deployment, uri: str) -> None:
    """The option is a usage error, and a line is a bad line."""
    path = embedded.write_lines([task_line(1, output_uri=uri)])
    assert "output_uri" in embedded.run("producer", "load", str(path)).err
    done = embedded.run("producer", "load", str(path), "--output-uri", uri)
    assert done.code == 2
    assert "is not the URI of a folder for results" in done.err


def test_results_go_to_an_object_store(embedded: Deployment, object_store: ObjectStore) -> None:
    """A bucket that is missing is waited for; no secret of the environment is said anywhere."""
    embedded.environ |= object_store.environ
    embedded.environ["DOCLLM_DOCUMENT_ALLOW"] = "s3://outputs/"
    llm = embedded.llm()
    path = embedded.write_lines(task_line(number) for number in range(TASKS))
    embedded.producer("load", str(path), "--output-uri", "s3://outputs/run%201/")
    agent = embedded.agent("--until-done")
    embedded.until(
        lambda: "OUTPUT_UNWRITABLE" in embedded.producer("status", "--json"),
        "an answer that cannot be written",
    )

    object_store.make_bucket("outputs")

    assert agent.wait(120) == 0, agent.tail()
    results = exported(embedded)
    assert {line["status"] for line in results} == {"succeeded"}
    assert all(str(line["output"]).startswith("s3://outputs/run%201/t") for line in results)
    assert len(llm.calls()) == TASKS
    object_store.delete("outputs", str(results[0]["output"]).replace("%20", " ").split("/", 3)[3])
    lost = exported(embedded, code=1)
    assert [line["error"] is None for line in lost] == [False, *[True] * (TASKS - 1)]
    assert object_store.environ["AWS_SECRET_ACCESS_KEY"] not in embedded.said()


def test_a_line_may_name_the_object_itself(embedded: Deployment) -> None:
    """It is a copy of the result's own object, or with `output_raw` the answer alone."""
    folder = allowed_folder(embedded)
    folder.mkdir()
    (folder / "raw.txt").write_text("of another program")
    embedded.llm()
    exact = f"file://{folder}/exact"
    lines = [
        task_line(0, output_uri=f"{exact}/a.json"),
        task_line(1, output_uri=f"file://{folder}/raw.txt", output_raw=True),
        task_line(2, output_uri=f"{exact}/a.json"),
        task_line(3, output_uri=f"{exact}/", output_raw=True),
    ]
    embedded.producer("load", str(embedded.write_lines(lines)), code=1)
    embedded.until_done()

    said = embedded.said()
    assert "output_uri names the object of an earlier line" in said
    assert "output_raw needs an object of its own" in said
    wrapped, raw = exported(embedded)
    own = Path(str(wrapped["output"]).removeprefix("file://"))
    assert own.parent == folder / "exact"
    assert own.name != "a.json"
    assert (folder / "exact" / "a.json").read_bytes() == own.read_bytes()
    assert (folder / "raw.txt").read_text() == raw["result"]
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".json", ".txt"}


def test_an_object_that_a_line_names_is_replaced_in_an_object_store(
    embedded: Deployment, object_store: ObjectStore
) -> None:
    """What another program wrote under the name gives way to the answer."""
    object_store.make_bucket("named")
    object_store.put("named", "a b.txt", b"of another program")
    embedded.environ |= object_store.environ
    embedded.environ["DOCLLM_DOCUMENT_ALLOW"] = "s3://named/"
    embedded.llm()
    line = task_line(0, output_uri="s3://named/a%20b.txt", output_raw=True)
    embedded.producer("load", str(embedded.write_lines([line])))
    embedded.until_done()

    (result,) = exported(embedded)
    assert object_store.get("named", "a b.txt").decode() == result["result"]


def test_a_batch_may_have_raw_objects(embedded: Deployment) -> None:
    """The option holds for each line that names an object; JSON is written as JSON."""
    folder = allowed_folder(embedded)
    folder.mkdir()
    embedded.llm()
    line = task_line(0, output_uri=f"file://{folder}/a", schema={"type": "object"})
    path = str(embedded.write_lines([line]))
    embedded.producer("load", path, "--output-uri", f"file://{folder}/a", code=2)
    embedded.producer("load", path, "--output-raw")
    embedded.until_done()

    (result,) = exported(embedded)
    assert orjson.loads((folder / "a").read_bytes()) == result["result"]

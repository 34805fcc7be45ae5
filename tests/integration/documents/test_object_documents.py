"""Documents in an object store, as a person loads them, and as agents read them."""

from itertools import count

import orjson
import pytest

from tests.faults.proxy import Proxy
from tests.integration.support.deployment import Deployment
from tests.servers import ObjectStore
from tests.servers.process import free_port

PROMPT = ("--prompt", "Sum up: {document}")
_numbers = count()


@pytest.fixture
def bucket(object_store: ObjectStore, embedded: Deployment) -> str:
    """Return a new bucket of the store that the programs' environment names."""
    name = f"documents-{next(_numbers)}"
    object_store.make_bucket(name)
    embedded.environ |= object_store.environ
    return name


def deaths(deployment: Deployment) -> dict[str, str]:
    return {
        task.name.partition("/")[2]: task.death.error_class
        for task in deployment.ledger.tasks()
        if task.death is not None
    }


def require_no_secret(deployment: Deployment, store: ObjectStore) -> None:
    said = "".join(program.out + program.err for program in deployment.programs)
    assert store.environ["AWS_SECRET_ACCESS_KEY"] not in said


def test_objects_are_loaded_and_read(
    embedded: Deployment, object_store: ObjectStore, bucket: str
) -> None:
    """Each object below the prefix is one task, once; the model gets its text."""
    llm = embedded.llm("--latency", "0")
    for name in ("a.txt", "d/b c.txt", "d/\u00fc.txt"):
        object_store.put(bucket, f"in/{name}", f"text of {name}".encode())
    object_store.put(bucket, "in/page.txt", b"<html><p>Sales rose.<script>sell()</script></html>")
    object_store.put(bucket, "in/empty.txt", b"")
    object_store.put(bucket, "other/x.txt", b"text")
    prefix = f"s3://{bucket}/in/"

    loaded = embedded.run("producer", "load", "--documents", prefix, *PROMPT)

    assert loaded.code == 1, loaded
    assert "batch in: 4 tasks loaded" in loaded.out
    assert "empty.txt: is empty; remove the object" in loaded.err
    assert f"set: DOCLLM_DOCUMENT_ALLOW={prefix}" in loaded.err
    embedded.environ["DOCLLM_DOCUMENT_ALLOW"] = prefix
    again = embedded.run("producer", "load", "--documents", f"{prefix}**/*.txt", *PROMPT)
    assert "DOCLLM_DOCUMENT_ALLOW" not in again.err

    embedded.until_done()

    assert embedded.ledger.counts()["succeeded"] == 4
    assert len(llm.calls()) == 4
    export = embedded.producer("export", "--batch", "in")
    results = {line["id"]: line for line in map(orjson.loads, export.splitlines())}
    assert set(results) == {"a.txt", "d/b c.txt", "d/\u00fc.txt", "page.txt"}
    assert "Sales rose." in str(results["page.txt"])
    assert "sell" not in str(results["page.txt"])
    require_no_secret(embedded, object_store)


def test_objects_that_are_not_as_loaded_are_given_up(
    embedded: Deployment, object_store: ObjectStore, bucket: str
) -> None:
    """Each has its reason, no call is made for it, and the others are not touched."""
    llm = embedded.llm("--latency", "0")
    for name in ("changed", "gone", "good"):
        object_store.put(bucket, f"in/{name}", name.encode())
    embedded.producer("load", "--documents", f"s3://{bucket}/in/", *PROMPT)
    lines = [
        {"id": key, "prompt": "{document}", "input": {"uri": uri}}
        for key, uri in (
            ("outside", f"s3://{bucket}/other/x"),
            ("beside", f"s3://{bucket}/in-other/x"),
            ("above", f"s3://{bucket}/in/%2e%2e/other/x"),
            ("no-bucket", "s3://no-such-bucket/in/x"),
        )
    ]
    embedded.producer("load", str(embedded.write_lines(lines)))
    object_store.put(bucket, "in/changed", b"CHANGED")
    object_store.delete(bucket, "in/gone")
    allow = f"s3://{bucket}/in/,s3://no-such-bucket/"
    embedded.environ["DOCLLM_DOCUMENT_ALLOW"] = allow

    embedded.until_done()

    assert deaths(embedded) == {
        "changed": "DOCUMENT_CHANGED",
        "gone": "DOCUMENT_CHANGED",
        "outside": "DOCUMENT_REFUSED",
        "beside": "DOCUMENT_REFUSED",
        "above": "DOCUMENT_REFUSED",
        "no-bucket": "DOCUMENT_REFUSED",
    }
    assert len(llm.calls()) == 1
    dead = embedded.producer("dead", "list", "--json")
    assert "its etag is another one" in dead
    assert "bucket that does not exist (status 404, NoSuchBucket)" in dead
    require_no_secret(embedded, object_store)


def test_an_outage_of_the_store_costs_no_task(
    embedded: Deployment, object_store: ObjectStore, bucket: str
) -> None:
    """Tasks whose objects cannot be read are tried again, and succeed when the store is back."""
    embedded.use_tiers("1s", "2s", max_attempts=100)
    embedded.llm("--latency", "0")
    embedded.environ["DOCLLM_DOCUMENT_ALLOW"] = f"s3://{bucket}/"
    names = [f"{number}.txt" for number in range(20)]
    for name in names:
        object_store.put(bucket, name, name.encode())
    embedded.producer("load", "--documents", f"s3://{bucket}/", *PROMPT)
    port = free_port()
    agent = embedded.agent("--until-done", AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
    embedded.until(lambda: len(embedded.ledger.attempts()) >= len(names), "an attempt of each task")
    classes = {attempt.error_class for attempt in embedded.ledger.attempts()}
    assert classes == {"DOCUMENT_UNREADABLE"}

    with Proxy() as proxy:
        proxy.open("store", port, object_store.port)
        assert agent.wait(400) == 0, agent.tail()

    assert embedded.ledger.counts()["succeeded"] == len(names)
    require_no_secret(embedded, object_store)


def test_a_store_that_cannot_be_listed_stops_the_load(embedded: Deployment, bucket: str) -> None:
    """No batch is made, and the exit code says who has to act."""
    wrong = embedded.run("producer", "load", "--documents", "s3://no-such-bucket/", *PROMPT)
    assert (wrong.code, "NoSuchBucket" in wrong.err) == (2, True), wrong
    embedded.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"

    down = embedded.run("producer", "load", "--documents", f"s3://{bucket}/", *PROMPT)

    assert (down.code, "does not answer" in down.err) == (3, True), down


def test_check_tells_whether_the_stores_answer(
    embedded: Deployment, object_store: ObjectStore, bucket: str
) -> None:
    """Each allowed prefix of a store is one test; agents can work while a store is away."""
    embedded.llm("--latency", "0")
    object_store.put(bucket, "in/a", b"text")
    prefixes = [f"s3://{bucket}/in/", f"s3://{bucket}/out/", "https://docs.example.com/"]
    embedded.environ["DOCLLM_DOCUMENT_ALLOW"] = ",".join(prefixes)

    good = embedded.run("producer", "check")
    wrong = embedded.run("producer", "check", DOCLLM_DOCUMENT_ALLOW="s3://no-such-bucket/")
    down = embedded.run("producer", "check", AWS_ENDPOINT_URL="http://127.0.0.1:1")

    assert good.code == 0, good
    assert f"ok      documents s3://{bucket}/in/: lists objects" in good.out
    assert f"ok      documents s3://{bucket}/out/: answers, and has no object yet" in good.out
    assert "docs.example.com" not in good.out
    assert (wrong.code, "NoSuchBucket" in wrong.out) == (2, True), wrong
    assert (down.code, down.out.count("WARNING documents s3://")) == (0, 2), down
    require_no_secret(embedded, object_store)


def test_repaired_objects_run_again_and_lost_ones_are_told(
    embedded: Deployment, object_store: ObjectStore, bucket: str
) -> None:
    """`replay --refresh-documents` asks the store for size and etag, and reads no object."""
    embedded.llm("--latency", "0")
    for name in ("gone", "repaired"):
        object_store.put(bucket, f"in/{name}", name.encode())
    embedded.environ["DOCLLM_DOCUMENT_ALLOW"] = f"s3://{bucket}/in/"
    load = ("load", "--documents", f"s3://{bucket}/in/", *PROMPT)
    embedded.producer(*load)
    object_store.put(bucket, "in/repaired", b"other words now")
    object_store.delete(bucket, "in/gone")
    embedded.until_done()
    assert set(deaths(embedded)) == {"gone", "repaired"}

    done = embedded.run("producer", "replay", "--all", "--refresh-documents", "--yes")
    embedded.until_done()

    assert done.code == 1, done
    assert "1 document changed, 0 as when loaded" in done.out
    assert "gone of batch in: " in done.out
    assert set(deaths(embedded)) == {"gone"}
    export = embedded.producer("export", "--batch", "in")
    results = {line["id"]: line["result"] for line in map(orjson.loads, export.splitlines())}
    assert "other words now" in results["repaired"]
    assert "1 loaded already" in embedded.producer(*load)
    require_no_secret(embedded, object_store)

"""`load --strict` loads all or nothing; `--dry-run` reports refusals and makes nothing."""

import os
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.integration.support.deployment import Deployment, task_line


def lines(*tasks: object) -> bytes:
    return b"".join(orjson.dumps(task) + b"\n" for task in tasks)


def feed(path: Path, content: bytes) -> None:
    """Write into a named pipe, which may never get a reader."""
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=[content], daemon=True).start()


@pytest.mark.parametrize("option", ["--strict", "--dry-run"])
def test_a_pipe_is_read_whole(embedded: Deployment, option: str) -> None:
    """A pipe is stored for the second reading.

    Otherwise it held nothing new, or the load waited for ever.
    """
    path = embedded.folder / "pipe.jsonl"
    feed(path, lines(task_line(1), task_line(2)))

    done = embedded.run("producer", "load", str(path), option)

    assert done.code == 0, done
    assert "2 tasks" in done.out
    if option == "--strict":
        assert len(embedded.ledger.tasks()) == 2


def test_an_input_with_clashing_ids_loads_nothing(embedded: Deployment) -> None:
    """Nothing is loaded from an input with an id that clashes inside the input.

    The clash is known only once the ids before it are.
    """
    path = embedded.folder / "twice.jsonl"
    path.write_bytes(
        lines(task_line(1), task_line(2), task_line(1) | {"prompt": "another {document}"})
    )

    done = embedded.run("producer", "load", str(path), "--strict")

    assert done.code == 1, done
    assert "line 3" in done.err
    assert "nothing is loaded: 1 bad line" in done.out
    assert not (embedded.folder / "docllm-data").exists()


@pytest.mark.parametrize("option", ["--strict", "--dry-run"])
def test_an_id_that_clashes_with_the_ledger_stops_the_load_first(
    embedded: Deployment, option: str
) -> None:
    """Nothing is loaded if an id clashes with the batch in the ledger."""
    path = embedded.folder / "b.jsonl"
    path.write_bytes(lines(task_line(1)))
    assert embedded.run("producer", "load", str(path)).code == 0
    path.write_bytes(lines(task_line(2), task_line(1) | {"prompt": "another {document}"}))

    done = embedded.run("producer", "load", str(path), option)

    assert done.code == 1, done
    assert "line 2" in done.err
    assert "already with another prompt" in done.err
    assert len(embedded.ledger.tasks()) == 1


def test_a_dry_run_needs_no_ledger_that_answers(embedded: Deployment) -> None:
    """A dry run without a reachable ledger estimates, and says what it could not check."""
    path = embedded.folder / "b.jsonl"
    path.write_bytes(lines(task_line(1)))
    nowhere: dict[str, Any] = {
        "DOCLLM_KAFKA_BOOTSTRAP": "127.0.0.1:1",
        "DOCLLM_DATABASE_URL": "mysql://u@127.0.0.1:1/d",
    }

    done = embedded.run("producer", "load", str(path), "--dry-run", **nowhere)

    assert done.code == 0, done
    assert "not compared" in done.err


def test_an_empty_name_of_a_batch_is_refused(embedded: Deployment) -> None:
    """An empty batch name is refused: an unset variable would load into an unnamed batch."""
    path = embedded.folder / "b.jsonl"
    path.write_bytes(lines(task_line(1)))

    assert embedded.run("producer", "load", str(path), "--batch", "").code == 2

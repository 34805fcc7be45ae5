"""What a batch needs and has not is said once, in few words, before an agent starts."""

from typing import Any

import orjson
import pytest

from docllm.producer.input import load_warnings
from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.conversion import TextSizes
from docllm.producer.input.documents import DocumentLine
from docllm.producer.input.lines import ValidLine, read_line
from docllm.producer.input.load_warnings import EMBEDDED_TASKS, Needs
from docllm.schemas.documents.kind import Kind
from docllm.schemas.settings.config import Config, KafkaConfig, TypeConfig

CLUSTER = Config(kafka=KafkaConfig(bootstrap="h:9092"))


def document(kind: Kind = Kind.PDF, omitted: tuple[str, ...] = (), **more: Any) -> DocumentLine:
    source = {"uri": "file:///d/a.pdf"} | more
    value = orjson.dumps({"id": "a", "prompt": "{document}", "input": source})
    line = read_line(1, value)
    assert isinstance(line, ValidLine)
    return DocumentLine(
        1, "a", value, line.task, "a.pdf", kind=kind, text_bytes=10, omitted=omitted
    )


def sizes() -> TextSizes:
    return TextSizes(lambda: pytest.fail("nothing is converted here"))


def warned(*lines: ValidLine, config: Config | None = None, **more: Any) -> list[str]:
    known = sizes()
    known.missing = {Kind.PDF, Kind.DOCX}
    given: dict[str, Any] = {"by_uri": False, "sizes": known} | more
    found = Needs(TaskAccounts(config or Config()), **given)
    for line in lines:
        found.add(line)
    return list(found.warnings(len(lines), unreadable=0))


def test_documents_that_need_an_extra_are_counted_by_kind() -> None:
    """One sentence with the command, for agents of this installation only."""
    lines = [document(), document(), document(Kind.DOCX), document(Kind.HTML)]

    (warning,) = warned(*lines)

    assert warning.startswith("3 documents (2 PDF, 1 DOCX) cannot be read by agents of this")
    assert warning.endswith("run: pip install '.[documents]' in the clone of docllm")
    assert warned(document(), config=CLUSTER, by_uri=True) == []


def test_files_that_agents_elsewhere_must_have_are_told() -> None:
    """Not with --by-uri, which says that they have them."""
    (warning,) = warned(document(), document(), config=CLUSTER)

    assert warning == (
        "2 tasks with a file of this machine by URI; each agent must find it under the same path, "
        "or load the documents with --convert"
    )
    assert warned(document(uri="s3://b/a.pdf"), config=CLUSTER) == []


def test_parts_that_a_conversion_left_out_are_told() -> None:
    """Each document once; the export names them too."""
    (warning,) = warned(*[document(Kind.TEXT, ("page 3",))] * 4)

    assert warning.startswith("4 documents converted without parts that are not read: a.pdf (page")
    assert warning.endswith(", ...")


def test_a_million_tasks_are_many_for_the_embedded_ledger() -> None:
    """Only the number counts, and only on embedded parts."""
    for config, count in ((Config(), 1), (CLUSTER, 0)):
        found = Needs(TaskAccounts(config), by_uri=False, sizes=sizes())
        assert list(found.warnings(EMBEDDED_TASKS - 1, unreadable=0)) == []
        assert len(list(found.warnings(EMBEDDED_TASKS, unreadable=0))) == count


def test_a_handler_of_another_type_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the handlers of types that the batch has."""
    monkeypatch.setattr(load_warnings, "broken_handlers", lambda types: dict.fromkeys(types, "x"))
    accounts = TaskAccounts(
        Config(types={name: TypeConfig(handler="m:f") for name in ("a", "other")})
    )
    line = read_line(1, b'{"id":"1","type":"a"}')
    assert isinstance(line, ValidLine)
    accounts.of(line.task)

    (warning,) = Needs(accounts, by_uri=False, sizes=sizes()).warnings(1, unreadable=0)

    assert warning == "tasks of type a would be dead: its handler cannot be used: x"

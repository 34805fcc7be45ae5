"""A join reads its children's results as an export writes them, wherever they lie."""

import asyncio
import zlib
from typing import Any

import orjson
import pytest

from docllm.agent.handlers import DocumentError
from docllm.agent.ledger.join_children import JoinChildren
from docllm.producer.ledger import joins
from docllm.producer.ledger.joins import EndedChild
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.codec import COMPLETION, POINTER, VALUE, VALUE_ZLIB
from docllm.schemas.task.result.output_pointer import output_of
from docllm.schemas.task.states import Status
from tests.support.doubles import double_of

URI = "file:///out/a-1.json"
ANSWER = orjson.dumps({"choices": [{"message": {"content": "The sum is 5."}}]})
WRITTEN = output_of(key="a/1", batch="b", codec=VALUE, stored=b'{"n":1}')


class Store:
    """Has one object, or none."""

    def __init__(self, content: bytes | None = None) -> None:
        self.content = content

    async def get(self, uri: str, *, limit: int) -> bytes:
        if self.content is None:
            raise ObjectError(ObjectFault.MISSING, f"{uri} does not exist")
        return self.content[:limit]

    async def put_new(self, uri: str, content: bytes) -> None:
        raise AssertionError(uri, content)


def child(codec: int, result: bytes | None, status: Status = Status.SUCCEEDED) -> EndedChild:
    return EndedChild(1, "a/1", status, b"{}", codec, result)


def read(page: list[EndedChild] | None, store: Store | None = None) -> list[Any]:
    """Return what a join's handler gets of this page."""

    async def read_page(work: object, join_id: int, after: int) -> list[EndedChild] | None:
        assert (work, join_id, after) == (joins.children, 9, 0)
        return page

    children = JoinChildren(
        transactions=double_of(Transactions, read=read_page),
        outputs=store or Store(),
        executor=InlineExecutor(),
    )
    return list(asyncio.run(children.read(9, 0)))


@pytest.mark.parametrize(
    ("of_task", "result"),
    [
        (child(COMPLETION, ANSWER), "The sum is 5."),
        (child(VALUE, b'{"n":[1,2]}'), {"n": [1, 2]}),
        (child(VALUE_ZLIB, zlib.compress(b"7")), 7),
        (child(0, None), None),
    ],
)
def test_a_result_is_a_text_or_a_value(of_task: EndedChild, result: object) -> None:
    """An answer's text, or the JSON value that the child's handler returned."""
    assert read([of_task]) == [[1, "a/1", "succeeded", result]]


def test_a_dead_child_has_no_result() -> None:
    """Its state tells it."""
    assert read([child(0, None, Status.DEAD)]) == [[1, "a/1", "dead", None]]


def test_a_result_outside_the_ledger_is_read_there() -> None:
    """Its pointer says where, and how it looked."""
    pointed = child(POINTER, WRITTEN.pointer(URI).stored())

    assert read([pointed], Store(WRITTEN.content)) == [[1, "a/1", "succeeded", {"n": 1}]]


@pytest.mark.parametrize("content", [None, WRITTEN.content.replace(b"1", b"2")])
def test_a_result_that_is_gone_or_altered_fails_the_attempt(content: bytes | None) -> None:
    """The error names the child and its object; the attempt may be tried again."""
    with pytest.raises(DocumentError, match=r"result of 'a/1', file:///out/a-1\.json") as raised:
        read([child(POINTER, WRITTEN.pointer(URI).stored())], Store(content))

    assert raised.value.failure.error_class == ErrorClass.DOCUMENT_UNREADABLE


def test_only_a_join_has_children() -> None:
    """Any other task is told so."""
    with pytest.raises(ValueError, match="only a join has children"):
        read(None)

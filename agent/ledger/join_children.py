"""Reads the results of the tasks for which a join waited, for its handler."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from docllm.agent.handlers import DocumentError
from docllm.producer.ledger import joins
from docllm.producer.ledger.joins import EndedChild
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.objects.write_once import WriteOnceStore
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.answer import read_result
from docllm.schemas.task.result.codec import POINTER
from docllm.schemas.task.result.output_pointer import OutputAlteredError, OutputPointer

ReadChild = list[Any]  # number, and the fields of a `Child`


@dataclass(slots=True, kw_only=True, eq=False)
class JoinChildren:
    """The tasks for which joins waited, a page at a time. `executor` decodes their results."""

    transactions: Transactions
    outputs: WriteOnceStore
    executor: Executor

    async def read(self, join_id: int, after: int) -> Sequence[ReadChild]:
        """Return the next tasks, as `AttemptContext.children`.

        Raises ValueError if the task is no join, and DocumentError if a result cannot be read.
        """
        page = await self.transactions.read(joins.children, join_id, after)
        if page is None:
            raise ValueError('only a join has children: a task ordered with after="children"')
        return [await self._read(child) for child in page]

    async def _read(self, child: EndedChild) -> ReadChild:
        result = None
        if child.result is not None and child.codec == POINTER:
            pointer = OutputPointer.of_stored(child.result)
            try:
                content = await self.outputs.get(pointer.uri, limit=pointer.size)
                result = await self.executor(partial(_of_object, pointer, content))
            except (ObjectError, OutputAlteredError) as error:
                text = f"the result of {child.key!r}, {pointer.uri}, cannot be read: {error}"
                raise DocumentError(ErrorClass.DOCUMENT_UNREADABLE, text) from None
        elif child.result is not None:
            read: Callable[[], Any] = partial(_value, child.line, child.codec, child.result)
            result = await self.executor(read)
        return [child.id, child.key, child.status.name.lower(), result]


def _of_object(pointer: OutputPointer, content: bytes) -> Any:
    return _value(b"", pointer.codec, pointer.result_in(content))


def _value(line: bytes, codec: int, stored: bytes) -> Any:
    """Return a result as an export writes it, as a value of Python."""
    answer = read_result(line, codec, stored).answer
    return answer if isinstance(answer, str | None) else orjson.loads(orjson.dumps(answer))

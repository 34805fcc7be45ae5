"""Follows the pointers to results outside the ledger, for exports, some objects at a time.

The order of tasks stays. An object that is gone or altered costs only its own result.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from docllm.producer.ledger.results.result_lines import ExportedTask, lost_output
from docllm.schemas.task.result.codec import POINTER
from docllm.schemas.task.result.output_pointer import OutputAlteredError, OutputPointer
from docllm.schemas.text.untrusted import contained, describe_error
from docllm.schemas.text.wording import one_line

# The content of each object, or the error in its place.
Fetch = Callable[[Sequence[OutputPointer]], Sequence[bytes | Exception]]

MAX_OBJECTS, MAX_BYTES = 64, 8 << 20  # that are read together


def no_outputs(pointers: Sequence[OutputPointer]) -> Sequence[bytes | Exception]:
    """Return an error for each object; used where no reader of objects exists."""
    return [OSError("nothing here reads it") for _ in pointers]


def follow(
    tasks: Iterable[ExportedTask], fetch: Fetch, note_lost: Callable[[str], None]
) -> Iterator[ExportedTask]:
    """Yield the tasks with their results; `note_lost` hears of each result that is not there."""
    held: list[tuple[ExportedTask, OutputPointer | None]] = []
    size = 0
    for ended in tasks:
        task, pointer = _read(ended, note_lost)
        if pointer is None and not held:
            yield task
            continue
        held.append((task, pointer))
        size += len(task.input) + (len(task.result.body) if task.result else 0)
        size += pointer.size if pointer else 0
        if len(held) >= MAX_OBJECTS or size >= MAX_BYTES:
            yield from _followed(held, fetch, note_lost)
            held, size = [], 0
    yield from _followed(held, fetch, note_lost)


def _read(
    task: ExportedTask, note_lost: Callable[[str], None]
) -> tuple[ExportedTask, OutputPointer | None]:
    """Return a task and its pointer, if it has one; a damaged pointer is a lost result."""
    if task.result is None or task.result.codec != POINTER:
        return task, None
    try:
        with contained():
            return task, OutputPointer.of_stored(task.result.body)
    except Exception as error:  # noqa: BLE001 - one damaged row must not end the export
        reason = one_line(f"the pointer to its output is damaged: {describe_error(error)}")
        return _lost(task, "", reason, note_lost), None


def _lost(
    task: ExportedTask, uri: str, reason: str, note_lost: Callable[[str], None]
) -> ExportedTask:
    note_lost(f"task {task.key}: {reason}")
    return lost_output(task, uri, reason)


def _followed(
    held: Sequence[tuple[ExportedTask, OutputPointer | None]],
    fetch: Fetch,
    note_lost: Callable[[str], None],
) -> Iterator[ExportedTask]:
    pointers = [pointer for _, pointer in held if pointer is not None]
    contents = iter(fetch(pointers) if pointers else ())
    for task, pointer in held:
        if pointer is None or task.result is None:
            yield task
            continue
        body = _body(pointer, next(contents))
        if isinstance(body, Exception):
            reason = one_line(f"its output {pointer.uri} cannot be used: {describe_error(body)}")
            yield _lost(task, pointer.uri, reason, note_lost)
        else:
            result = replace(
                task.result,
                codec=pointer.codec,
                body=body,
                output=pointer.uri,
                mended=pointer.mended,
            )
            yield replace(task, result=result)


def _body(pointer: OutputPointer, content: bytes | Exception) -> bytes | Exception:
    if isinstance(content, Exception):
        return content
    try:
        return pointer.result_in(content)
    except OutputAlteredError as error:
        return error

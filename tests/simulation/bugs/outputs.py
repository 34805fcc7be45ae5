"""Bugs of results outside the ledger."""

from typing import Any

from docllm.agent.execution.output_writer import Outputs
from docllm.agent.ports.outcome import Outcome, Succeeded
from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.task.result.output_pointer import Output, OutputPointer
from tests.simulation.bugs.bug import Bug, replaced
from tests.simulation.bugs.stages import WRITTEN


async def _taken_as_written(self: Outputs, uri: str, content: bytes) -> bool:
    """Take any object of the name for the one to write."""
    try:
        await self._store.put_new(uri, content)
    except ObjectError:
        return True
    return True


async def _over_the_older(self: Outputs, uri: str, content: bytes) -> bool:
    """Write over an object of the same name."""
    store: Any = self._store
    await store._answer(uri)
    store.write(uri, content)
    return True


async def _pointed_before(self: Outputs, folder: str, names: Any, _output: Output) -> str:
    """Return the URI, and leave the write for later."""
    return f"{folder}{next(iter(names))}"


async def _copied_before(
    self: Outputs, answer: Any, row: Any, *, owner: int, until_s: float
) -> Outcome:
    """Copy an answer to the object that its line names at once, and not after the settle."""
    written = await _WRITE(self, answer, row, owner=owner, until_s=until_s)
    if isinstance(written, Succeeded) and written.output_uri:
        store: Any = self._store
        pointer = OutputPointer.of_stored(written.body)
        await store.put(written.output_uri, await store.get(pointer.uri, limit=pointer.size))
    return written


_WRITE = Outputs.write
BUGS = {
    "an object that exists is taken for the answer's": Bug(
        "P1", replaced(Outputs, "_is_there", _taken_as_written), WRITTEN
    ),
    "an object is written over an older one": Bug(
        "P1", replaced(Outputs, "_is_there", _over_the_older), WRITTEN
    ),
    "an answer is copied to its line's object before the settle": Bug(
        "P1", replaced(Outputs, "write", _copied_before), WRITTEN
    ),
    "a pointer is settled without its object": Bug(
        "P1", replaced(Outputs, "_put", _pointed_before), WRITTEN
    ),
}

"""Bugs of results outside the ledger."""

from typing import Any

from docllm.agent.execution import output_writer
from docllm.agent.execution.output_writer import Outputs
from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.task.result.output_pointer import Output
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


async def _pointed_before(self: Outputs, folder: str, claimed: Any, _output: Output) -> str:
    """Return the URI, and leave the write for later."""
    return f"{folder}{next(output_writer.names(claimed))}"


BUGS = {
    "an object that exists is taken for the answer's": Bug(
        "P1", replaced(Outputs, "_is_there", _taken_as_written), WRITTEN
    ),
    "an object is written over an older one": Bug(
        "P1", replaced(Outputs, "_is_there", _over_the_older), WRITTEN
    ),
    "a pointer is settled without its object": Bug(
        "P1", replaced(Outputs, "_put", _pointed_before), WRITTEN
    ),
}

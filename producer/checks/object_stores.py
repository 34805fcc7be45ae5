"""Tests whether the object stores in `documents.allow` answer, by listing a prefix."""

import asyncio

from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectStores

# Faults that do not keep agents from working: documents are retried later, and a key may allow only
# reading.
_PASSING = frozenset({ObjectFault.OUTAGE, ObjectFault.DENIED, ObjectFault.WRONG_NAME})


async def listed(prefix: str) -> str:
    """Return what a listing of a prefix shows; nothing may be there yet, for results.

    Raises ConfigError and UnreachableError.
    """
    try:
        first_entry = await asyncio.to_thread(lambda: next(ObjectStores().entries(prefix), None))
    except ObjectError as error:
        if error.fault in _PASSING:
            raise UnreachableError(str(error)) from None
        raise ConfigError(str(error)) from None
    return "lists objects" if first_entry else "answers, and has no object yet"

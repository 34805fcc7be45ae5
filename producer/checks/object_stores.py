"""Tests whether the object stores of `documents.allow` answer, by listing what is below a prefix.

Tested by tests/integration/test_object_documents.py.
"""

import asyncio

from schemas.errors import ConfigError, UnreachableError
from schemas.objects.errors import ObjectError, ObjectFault
from schemas.objects.store import ObjectStores

# Agents work without these: documents are read again later, and reading may be allowed alone.
_PASSING = frozenset({ObjectFault.OUTAGE, ObjectFault.DENIED, ObjectFault.WRONG_NAME})


async def listed(prefix: str) -> str:
    """Return what a listing of a prefix shows; nothing may be there yet, for results.

    Raises ConfigError and UnreachableError.
    """
    try:
        found = await asyncio.to_thread(lambda: next(ObjectStores().entries(prefix), None))
    except ObjectError as error:
        if error.fault in _PASSING:
            raise UnreachableError(str(error)) from None
        raise ConfigError(str(error)) from None
    return "lists objects" if found else "answers, and has no object yet"

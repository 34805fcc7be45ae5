"""Adjusts Python's collector of cyclic garbage and the allocators below it.

This is for programs that handle many tasks, whose objects are freed by reference counting. At
Python's own threshold of 700 objects the collector takes a tenth of such a program's CPU, most of
it to scan objects that stay.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

# Objects made and not yet freed; and how many collections of young objects come before one of older
# ones, and of these before one of all.
COLLECT_AT = (20_000, 50, 100)
# Of glibc's mallopt: the parameters' numbers, as <malloc.h> has them, and their values.
_MALLOC_OPTIONS = ((-3, 256 << 10), (-1, 1 << 20), (-8, 2))


def save_memory() -> None:
    """Let the allocators return what is free; call it before the HTTP client is imported.

    While 1,000 calls run and 12,000 bodies wait, this saves an agent 30 MB of 230. By default glibc
    keeps a heap for each of some twenty threads and trims it late, and the HTTP client's allocator
    asks for huge pages that it fills in part. An allocator that does not know an option ignores it.
    """
    import ctypes  # noqa: PLC0415 - the parser of every command loads this module

    os.environ.setdefault("MIMALLOC_ALLOW_THP", "0")
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        for option, value in _MALLOC_OPTIONS:
            mallopt(option, value)


def calm() -> None:
    """Exempt the present objects, and collect the others seldom.

    Call it after the start. What is made later and stays is scanned seldom enough: while 12,000
    tasks run, the collector takes 0.3 % of the CPU.
    """
    gc.freeze()
    gc.set_threshold(*COLLECT_AT)


@contextmanager
def resting() -> Iterator[None]:
    """Let the collector rest while a program imports its code, nearly all of which stays."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

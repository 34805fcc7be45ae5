"""Contains the failures of libraries that read untrusted bytes.

Native code can end in an exception that is not an `Exception`: a panic in Rust arrives as a bare
BaseException (`pyo3_runtime.PanicException`). If it were not caught, one record would stop the
whole process.
"""

import pickle
import signal
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class ContainedError(Exception):
    """A library raised something that is not an Exception; the message names its class."""


class _Contained:
    """The guard of `contained`.

    It has no state, so a single instance is reused for all lines of a file.
    """

    def __enter__(self) -> None:
        """Let the body run."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Turn an error that is no Exception into a ContainedError."""
        if error is not None and not isinstance(error, Exception) and not is_interrupt(error):
            raise ContainedError(describe_error(error)) from error


_CONTAINED = _Contained()


def contained() -> _Contained:
    """Turn a BaseException of the body into a ContainedError; let an Exception pass as it is.

    For synchronous code only. Synchronous code cannot be cancelled, so a CancelledError in the body
    comes from the library. A person's Ctrl-C passes.
    """
    return _CONTAINED


def as_contained(error: BaseException) -> Exception:
    """Return an error of synchronous code as `contained` makes it; raise a person's Ctrl-C.

    `except BaseException` with this costs nothing where nothing is raised.
    """
    if isinstance(error, Exception):
        return error
    if is_interrupt(error):
        raise error
    return ContainedError(describe_error(error))


def sealed(call: Callable[[], T]) -> T:
    """Run a call whose errors can be sent from a child process to its parent."""
    try:
        with contained():
            return call()
    except Exception as error:  # noqa: BLE001 - another process must be able to read any error
        raise _portable(error) from None


def _portable(error: Exception) -> Exception:
    try:
        with contained():
            pickle.loads(pickle.dumps(error))  # noqa: S301 - it was made here
    except Exception:  # noqa: BLE001 - a class that the parent cannot recreate would end its pool
        return ContainedError(describe_error(error))
    return error


def describe_error(error: BaseException) -> str:
    """Return the class and message of an exception, or of the one that was contained."""
    if isinstance(error, ContainedError):
        return described(error)
    return f"{type(error).__name__}: {described(error)}"


def described(error: BaseException) -> str:
    """Return an exception's message, even if creating the message fails."""
    try:
        return str(error)
    except BaseException as second:
        if is_interrupt(second):
            raise
        return f"(its message cannot be read: {type(second).__name__})"


def is_panic(error: BaseException) -> bool:
    """Return whether a panic of native code ended a coroutine.

    A panic is neither an Exception nor a cancellation or exit.
    """
    import asyncio  # noqa: PLC0415 - slow, and a program that checks its options has no coroutine

    ends = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
    return not isinstance(error, (Exception, *ends))


def is_interrupt(error: BaseException) -> bool:
    """Return whether a person pressed Ctrl-C.

    Python's own handler raises KeyboardInterrupt in the main thread.
    """
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )

"""If a library raises something that is not an Exception, only that call fails."""

import asyncio
import signal

import pytest

from docllm.schemas.text.untrusted import ContainedError, contained, described


class PanicError(BaseException):
    """A panic in native code, as Python sees it."""


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise PanicError


@pytest.mark.parametrize(
    "error", [PanicError("lost"), SystemExit(0), GeneratorExit(), asyncio.CancelledError()]
)
def test_an_error_that_is_no_exception_becomes_one(error: BaseException) -> None:
    """Callers catch Exception, so nothing else leaves the body."""
    with pytest.raises(ContainedError, match=type(error).__name__), contained():
        raise error


def test_an_exception_passes_as_it_is() -> None:
    """An Exception passes unchanged, because the caller knows the library's errors."""
    with pytest.raises(ValueError, match="of the library"), contained():
        raise ValueError("of the library")


def test_ctrl_c_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person's Ctrl-C passes."""
    monkeypatch.setattr(signal, "getsignal", lambda _number: signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt), contained():
        raise KeyboardInterrupt


def test_an_interrupt_raised_by_a_library_is_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A KeyboardInterrupt that nobody caused is contained: an agent handles its own signals."""
    monkeypatch.setattr(signal, "getsignal", lambda _number: signal.SIG_IGN)
    with pytest.raises(ContainedError), contained():
        raise KeyboardInterrupt


def test_a_message_that_cannot_be_made_is_described() -> None:
    """An exception whose __str__ fails still has a description."""
    assert described(UnreadableError()) == "(its message cannot be read: PanicError)"
    assert described(ValueError("plain")) == "plain"

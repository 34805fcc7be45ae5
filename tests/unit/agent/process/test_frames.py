"""Tracebacks and stacks are shown from the handler on, without values."""

import asyncio
import json
import sys
import threading

import pytest

from docllm.agent.process.containment import enter_handler, new_event_loop
from docllm.agent.process.frames import (
    MAX_CHARS,
    MAX_FRAMES,
    frames_of_error,
    frames_of_stack,
    frames_text,
    place_of,
    traceback_text,
)

SECRET = f"sk-{'abcdefgh'}"


def fail_in_a_library() -> None:
    json.loads("{")


def fail_at_first() -> None:
    raise KeyError(SECRET)


def fail_with_a_cause() -> None:
    try:
        fail_at_first()
    except KeyError as error:
        raise ValueError(SECRET) from error


def recurse(depth: int) -> None:
    if depth:
        recurse(depth - 1)
    raise ValueError


def raised(call: object, *arguments: object) -> BaseException:
    assert callable(call)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - any message
        call(*arguments)
    return caught.value


def test_the_place_is_where_a_persons_own_code_called_a_library() -> None:
    """The line inside the library says nothing about what to correct."""
    frames = frames_of_error(raised(fail_in_a_library))
    line = fail_in_a_library.__code__.co_firstlineno + 1

    assert place_of(frames) == f"tests/unit/agent/process/test_frames.py:{line}"
    assert 'decoder.py", line ' in frames_text(frames)
    assert place_of([]) == ""


def test_a_traceback_names_its_causes_and_no_secret() -> None:
    """The error of a person's own class often hides the one that explains it."""
    text = traceback_text(raised(fail_with_a_cause))

    assert text.count(", in fail_with_a_cause\n") == 2
    assert text.count(", in fail_at_first\n") == 1
    assert "caused by KeyError: '***'\n" in text
    assert "raise ValueError(SECRET) from error" in text
    assert "abcdefgh" not in text


def test_a_deep_traceback_is_cut_in_the_middle() -> None:
    """Both ends say where it began and where it failed."""
    text = frames_text(frames_of_error(raised(recurse, 500)))

    assert text.count('  File "') == MAX_FRAMES
    assert " more frames\n" in text
    assert text.endswith("raise ValueError")
    assert len(traceback_text(raised(recurse, 500))) <= MAX_CHARS


def test_code_from_outside_is_inert() -> None:
    """A name of a file or function may hold what a terminal acts on."""
    code = compile("def f():\n    raise ValueError\nf()", "a\x1b[31m\nb.py", "exec")

    assert '  File "a [31m b.py", line 2, in f' in frames_text(frames_of_error(raised(exec, code)))


def test_the_stack_of_a_handlers_own_task_begins_in_its_code() -> None:
    """The event loop's frames and the guard around the coroutine are left out."""
    texts = []

    async def part() -> None:
        frames = frames_of_stack(sys._current_frames()[threading.get_ident()])
        texts.append(frames_text(frames))

    async def attempt() -> None:
        enter_handler(asyncio.current_task())
        await asyncio.create_task(part())

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(attempt())

    assert texts[0].startswith(f'  File "{__file__}", line ')
    assert ", in part\n" in texts[0].split("File")[1]

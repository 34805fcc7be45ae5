"""Shows the frames of a traceback: files, lines, functions and code, but no values.

A value may be a secret. Code and messages are masked as errors are, and each line is bounded.
"""

import os
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from traceback import FrameSummary
from types import FrameType

import docllm
from docllm.schemas.text.untrusted import describe_error
from docllm.schemas.text.wording import one_line

MAX_FRAMES = 20
MAX_CHARS = 4000  # the longest traceback
_CODE_CHARS = 200
_CAUSES = 3

_ROOT = Path(docllm.__file__).parent
# Frames of these files, and all before them, lead to a handler and say nothing about it.
_ENTRIES = frozenset(
    str(_ROOT / name)
    for name in (
        "agent/handlers/functions.py",
        "agent/handlers/processes/program.py",
        "agent/handlers/registry.py",
        "agent/handlers/runner.py",
        "agent/process/containment.py",
    )
)
_OWN = tuple(f"{_ROOT / name}{os.sep}" for name in ("agent", "producer", "schemas"))
_LIBRARIES = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def frames_of_error(error: BaseException) -> Sequence[FrameSummary]:
    """Return the frames of a raised error from the handler on, the innermost last."""
    return _from_handler(_summaries(traceback.walk_tb(error.__traceback__)))


def frames_of_stack(innermost: FrameType | None) -> Sequence[FrameSummary]:
    """Return the frames of a running thread from the handler on, the innermost last."""
    return _from_handler(_summaries(reversed(list(traceback.walk_stack(innermost)))))


def frames_text(frames: Sequence[FrameSummary]) -> str:
    """Return the frames as lines; of very many, those at both ends."""
    if len(frames) > MAX_FRAMES:
        half = MAX_FRAMES // 2
        left_out = f"  ... {len(frames) - 2 * half:,} more frames"
        return "\n".join([*_lines(frames[:half]), left_out, *_lines(frames[-half:])])
    return "\n".join(_lines(frames))


def traceback_text(error: BaseException) -> str:
    """Return the frames of an error and of the errors that caused it, without its message."""
    parts = [frames_text(frames_of_error(error))]
    parts += (
        f"caused by {one_line(describe_error(cause))}\n{frames_text(frames_of_error(cause))}"
        for cause in islice(_causes(error), _CAUSES)
    )
    return "\n".join(part.rstrip() for part in parts)[:MAX_CHARS]


def place_of(frames: Sequence[FrameSummary]) -> str:
    """Return file and line of the innermost frame outside libraries; empty without frames."""
    if not frames:
        return ""
    frame = next((frame for frame in reversed(frames) if _is_persons(frame)), frames[0])
    return f"{one_line(_short(frame.filename))}:{frame.lineno}"


def _summaries(frames: Iterable[tuple[FrameType, int]]) -> list[FrameSummary]:
    # The lines of code are read later, for those frames alone that are shown.
    return list(traceback.StackSummary.extract(iter(frames), lookup_lines=False))


def _from_handler(frames: list[FrameSummary]) -> Sequence[FrameSummary]:
    entry = next((i for i, frame in enumerate(frames) if frame.filename in _ENTRIES), -1)
    return [frame for frame in frames[entry + 1 :] if frame.filename not in _ENTRIES] or frames


def _lines(frames: Iterable[FrameSummary]) -> Iterator[str]:
    for frame in frames:
        yield f'  File "{one_line(frame.filename)}", line {frame.lineno}, in {one_line(frame.name)}'
        if frame.line:
            yield f"    {one_line(frame.line)[:_CODE_CHARS]}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen = {id(error)}
    cause = _cause(error)
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = _cause(cause)


def _cause(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_persons(frame: FrameSummary) -> bool:
    return not frame.filename.startswith(("<", *_OWN, *_LIBRARIES))


def _short(filename: str) -> str:
    """Return the path below the current folder, if it is there."""
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return filename

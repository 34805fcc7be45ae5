"""An agent that counts what it does: calls and statements up to a mark, or its memory blocks.

`sys.setprofile` tells of calls on the thread that sets it, which is the event loop's.
"""

import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn

import orjson
from sqlalchemy import event
from sqlalchemy.engine import Engine

from bench.program import ROOT
from docllm.agent.__main__ import start
from docllm.agent.execution.settler import Settler

PLAIN = "document-"  # what the keys of the counted tasks begin with


def run_to_marks(arguments: Sequence[str], marks: Sequence[int], report: Path) -> NoReturn:
    """Run an agent until the last mark, a number of settled plain tasks, and write its notes.

    At each mark it notes how often each function was called on this thread, and how many statements
    were sent on any thread.
    """
    python: Counter[CodeType] = Counter()
    builtin: Counter[str] = Counter()
    statements: Counter[str] = Counter()
    settle, notes, settled = Settler.settle.__code__, list[dict[str, Any]](), 0

    def note() -> None:
        calls = builtin.copy()
        for code, count in python.items():
            calls[f"{_place(code)}:{code.co_qualname}"] += count
        notes.append({"calls": calls, "statements": dict(statements)})
        if len(notes) == len(marks):
            report.write_bytes(orjson.dumps(notes))
            os._exit(0)

    def count(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal settled
        if event == "call":
            code = frame.f_code
            python[code] += 1
            if code is settle and frame.f_locals["delivery"].row.key_text.startswith(PLAIN):
                settled += 1
                if settled == marks[len(notes)]:
                    note()
        elif event == "c_call":
            builtin[arg.__qualname__] += 1

    def note_statement(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements[statement.partition(" ")[0]] += 1

    event.listen(Engine, "before_cursor_execute", note_statement)
    event.listen(Engine, "commit", lambda _connection: statements.update(["COMMIT"]))
    sys.setprofile(count)
    start(arguments)


def run_with_blocks(arguments: Sequence[str], folder: Path) -> NoReturn:
    """Run an agent that answers each file NAME.ask in the folder by its memory blocks."""
    threading.Thread(target=_answer_blocks, args=[folder], daemon=True).start()
    start(arguments)


def _answer_blocks(folder: Path) -> None:
    while True:
        for ask in folder.glob("*.ask"):
            gc.collect()
            ask.write_text(str(sys.getallocatedblocks()))
            ask.rename(ask.with_suffix(".blocks"))
        time.sleep(0.05)


def _place(code: CodeType) -> str:
    """Return the path of the code's file from its package on."""
    path = code.co_filename.rpartition("/site-packages/")[2].rpartition("/lib/python")[2]
    return path.removeprefix(f"{ROOT}/").removeprefix("docllm/")

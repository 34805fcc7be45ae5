"""Files of task lines to measure with. Pure but for writing them."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

WORDS = (
    "the harvest of this year costs more than last one because rain came late and nobody had "
    "thought about seed before spring"
).split()
SPREAD = 1 << 20  # documents begin at different places of a text of this length
ANSWER_CHARS = 760  # makes an answer of 1 KB


def write_tasks(path: Path, count: int, line_bytes: int, **more: Any) -> Path:
    """Write `count` task lines of about `line_bytes` each; `more` is added to each line."""
    with path.open("wb") as file:
        file.writelines(_lines(count, line_bytes, more))
    return path


def answer_of_1_kb() -> dict[str, Any]:
    """Return parameters that make the rehearsal LLM answer with 1 KB."""
    schema = {"type": "string", "minLength": ANSWER_CHARS}
    return {
        "params": {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": schema},
            }
        }
    }


def _lines(count: int, line_bytes: int, more: dict[str, Any]) -> Iterator[bytes]:
    size = max(line_bytes - len(_line(count, "", more)), 1)
    text = _text(size + SPREAD)
    for number in range(count):
        begin = number * 7919 % SPREAD
        yield _line(number, text[begin : begin + size], more)


def _text(chars: int) -> str:
    """Return words in random order, the same each time; they compress as badly as real text."""
    chance = random.Random(1)  # noqa: S311 - it protects nothing
    return " ".join(f"{chance.choice(WORDS)}{chance.randrange(100)}" for _ in range(chars // 4))[
        :chars
    ]


def _line(number: int, text: str, more: dict[str, Any]) -> bytes:
    line = {
        "id": f"document-{number:07}",
        "prompt": "Summarize: {document}",
        "input": {"text": text},
        **more,
    }
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)

"""Files of task lines to measure with. Pure but for writing them."""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

WORDS = (
    "the harvest of this year costs more than last one because rain came late and nobody had "
    "thought about seed before spring"
).split()
SPREAD = 1 << 20  # documents begin at different places of a text of this length
ANSWER_CHARS = 760  # makes an answer of 1 KB
PLAIN_WORDS = 400


def write_tasks(path: Path, count: int, line_bytes: int, **more: Any) -> Path:
    """Write `count` task lines of about `line_bytes` each; `more` is added to each line."""
    return write_lines(path, _lines(count, line_bytes, more))


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


def write_plain(path: Path, count: int) -> Path:
    """Write `count` lines of plain tasks: 400 words of text, and nothing but what they need."""
    words = _text(SPREAD).split()
    begins = (number * 7919 % (len(words) - PLAIN_WORDS) for number in range(count))
    texts = (" ".join(words[begin : begin + PLAIN_WORDS]) for begin in begins)
    return write_lines(path, (_line(number, text, {}) for number, text in enumerate(texts)))


def write_lines(path: Path, lines: Iterable[bytes]) -> Path:
    """Write these lines."""
    with path.open("wb") as file:
        file.writelines(lines)
    return path

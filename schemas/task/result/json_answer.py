"""Reads JSON that a strict reader refuses although a person can read it, and that of an answer.

Only a text that orjson refuses is read a second time, by the standard library. It takes half a
surrogate pair, `NaN` and `Infinity`, and line breaks within a text; the rest is done here. Every
reader of answers takes their JSON through `json_answer`.
"""

import json
import math
import re
from functools import partial
from typing import Any, NamedTuple

import orjson

from docllm.schemas.task.result.message_text import is_empty, text_of, thoughts_of
from docllm.schemas.task.result.wrapping import unwrapped

SURROGATE, NUMBER, CONTROL, ENCODING = "surrogate", "number", "control", "encoding"
_HALF = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as Python decodes them
_CUT_LETTER = re.compile(b"[\xc2-\xf4][\x80-\xbf]")
_MAX_DIGITS = 308  # a longer whole number is infinite as a double


class Json(NamedTuple):
    """A JSON text, its value, and what was mended in it; strict readers can read the text.

    An answer in JSON `was_wrapped` if a fence or thoughts were taken off it.
    """

    text: bytes
    value: Any
    mended: tuple[str, ...] = ()
    was_wrapped: bool = False


def read_json(raw: bytes) -> Json:
    """Return the JSON in `raw`, mended if need be. Raises JSONDecodeError.

    What cannot be read becomes U+FFFD, a number without a value becomes null. A byte order mark is
    left out.
    """
    try:
        return Json(raw, orjson.loads(raw))
    except orjson.JSONDecodeError as refusal:
        try:
            return _mended(raw)
        except (ValueError, RecursionError):
            raise refusal from None


def _mended(raw: bytes) -> Json:
    mended: dict[str, None] = {}  # in the order in which they were met
    text = _decoded(raw, mended)

    def number(digits: str) -> float | None:
        is_whole = digits.lstrip("-").isdecimal()
        if is_whole and len(digits) <= _MAX_DIGITS:
            return int(digits)
        if not is_whole and math.isfinite(real := float(digits)):
            return real
        mended[NUMBER] = None
        return None

    read = partial(json.loads, text, parse_int=number, parse_float=number, parse_constant=number)
    try:
        value = read()
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Invalid control character"):
            raise
        mended[CONTROL] = None
        value = read(strict=False)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if _HALF.search(text):
        mended[SURROGATE] = None
        # UTF-16 joins two halves that belong together.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    strict = text.encode()
    return Json(strict, orjson.loads(strict), tuple(mended))


def _decoded(raw: bytes, mended: dict[str, None]) -> str:
    """Return a text as its first bytes show its encoding, without marks and NUL around it."""
    encoding = json.detect_encoding(raw)
    try:
        # Half a surrogate pair may also be written as three bytes.
        text = raw.decode(encoding, "surrogatepass")
    except UnicodeDecodeError:
        mended[ENCODING] = None
        is_utf_8 = encoding.startswith("utf-8")
        text = _with_stray_bytes(raw) if is_utf_8 else raw.decode(encoding, "replace")
    return text.strip("\ufeff\0")


def _with_stray_bytes(raw: bytes) -> str:
    """Return a text that is not UTF-8 as a whole.

    It is damaged if it has letters in UTF-8, or beginnings of such letters. Otherwise it is in
    Windows-1252, which servers of Western Europe write.
    """
    text = raw.decode("utf-8", "surrogateescape")
    is_damaged = _CUT_LETTER.search(raw) or not _ESCAPED.sub("", text).isascii()
    return raw.decode("utf-8" if is_damaged else "cp1252", "replace")


def json_answer(message: dict[str, Any], *, strict: bool = False) -> Json:
    """Return the JSON in a message's text, or a content that is JSON itself.

    Unless `strict`, fences and thoughts around it are taken off, and what a person can read is
    mended. If the content is empty, the answer may be in the field of the thoughts. Raises
    JSONDecodeError, and JSONEncodeError for a content that is nested too deeply.
    """
    content = text_of(message.get("content"))
    if is_empty(content):
        content = "" if strict else thoughts_of(message)[1]
    if not isinstance(content, str):
        return Json(orjson.dumps(content), content)
    text = content.encode()
    try:
        return Json(text, orjson.loads(text))
    except orjson.JSONDecodeError:
        if strict:
            raise
    return _unwrapped(content)


def _unwrapped(content: str) -> Json:
    candidates = list(unwrapped(content))
    for candidate in candidates:
        try:
            answer = read_json(candidate.encode())
        except orjson.JSONDecodeError:
            continue
        return answer._replace(was_wrapped=candidate != content.strip())
    value = orjson.loads(candidates[0])  # raises what is wrong with the likeliest
    return Json(candidates[0].encode(), value)

"""Reads a provider's error: its codes and its texts, in whatever shape of JSON, HTML or text.

What repeats the request, such as an `input` beside a message, is not read: a document must not
decide about its own failure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from docllm.schemas.task.provider_error import ProviderError, provider_error_of
from docllm.schemas.text.wording import TEXT_CHARS

# Names are compared in lower case and without `_` and `-`.
_CODES = frozenset(
    "code type status errorcode errortype statuscode httpcode error name key reason blockreason "
    "grpccode".split()
)
_TEXTS = (
    "message",
    "detail",
    "error",
    "msg",
    "errormessage",
    "errormsg",
    "statusmsg",
    "errmsg",
    "faultstring",
    "description",
    "errordescription",
    "title",
    "blockreasonmessage",
    "raw",
)
_LISTS = frozenset({"error", "errors", "detail", "details", "message"})
_PLACES = frozenset({"param", "loc"})
_NOT_READ = frozenset(
    "input prompt content messages choices request body ctx output usage text document "
    "flaggedinput url headers created data model id object".split()
)
MAX_PARTS, _MAX_DEPTH, _MAX_CODES, _MAX_TEXTS = 32, 6, 24, 4
_MAX_NAMES, _MAX_ITEMS = 64, 8
_CODE_CHARS = 100
_PAGE_CHARS = 8_000
_SILENT = ("style", "script")


_NOTHING = ProviderError()


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """What an error says. `places` are the fields of the request that it names."""

    codes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    named: ProviderError = _NOTHING


def read_body(body: bytes) -> ErrorBody:
    """Return what the body of an error says. A page or a text is its own message."""
    value = parsed(body)
    if isinstance(value, dict | list):
        return read_value(value)
    if isinstance(value, str):
        return ErrorBody(texts=(value,) if value.strip() else ())
    text = body[:_PAGE_CHARS].decode("utf-8", "replace").removeprefix("\ufeff").strip()
    shown = page_text(text) if is_page(body) else text
    return ErrorBody(texts=(shown,) if shown else ())


def read_value(value: Any) -> ErrorBody:
    """Return what an error that is already parsed says."""
    codes: list[str] = []
    texts: list[str] = []
    places: list[str] = []
    named: ProviderError | None = None
    others: list[str] = []
    parts = 0
    waiting: list[tuple[str, Any, int]] = [("", value, 0)]
    while waiting and parts < MAX_PARTS:
        name, part, depth = waiting.pop(0)
        if isinstance(part, list):
            parts += 1
            inner = part[:_MAX_ITEMS] if depth < _MAX_DEPTH else []
            if name in _LISTS:
                texts += [item for item in inner if isinstance(item, str) and item.strip()]
            waiting[:0] = [(name, item, depth + 1) for item in inner]
            continue
        if isinstance(part, str):
            part = parsed_within(part)
        if not isinstance(part, dict):
            continue
        parts += 1
        fields = {_plain(key): item for key, item in list(part.items())[:_MAX_NAMES]}
        codes += _codes_of(name, fields)
        places += _places_of(fields)
        if text := _text_of(fields):
            if parsed(text) is None:
                texts.append(text)
            named = named or provider_error_of(part)
        elif text := _other_text_of(fields):
            others.append(text)
        if depth < _MAX_DEPTH:
            waiting[:0] = [
                (key, item, depth + 1)
                for key, item in fields.items()
                if key not in _NOT_READ and isinstance(item, dict | list | str)
            ]
    return ErrorBody(
        tuple(dict.fromkeys(codes))[:_MAX_CODES],
        tuple(dict.fromkeys(texts or others))[:_MAX_TEXTS],
        tuple(places[:_MAX_CODES]),
        named or _NOTHING,
    )


def parsed(body: bytes | str) -> Any:
    """Return the JSON value of a body; None if it is none."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def parsed_within(text: str) -> Any:
    """Return the JSON object in a text, as gateways quote the provider's own error."""
    first, last = text.find("{"), text.rfind("}")
    return parsed(text[first : last + 1]) if 0 <= first < last else None


def is_page(value: Any) -> bool:
    """Return whether a body is a page of HTML or XML."""
    return (
        isinstance(value, bytes) and value[:_PAGE_CHARS].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<"
    )


def page_text(page: str) -> str:
    """Return the words of the beginning of an HTML page, without styles and scripts."""
    words: list[str] = []
    at = 0
    while (opening := page.find("<", at)) >= 0:
        words.append(page[at:opening])
        closing = page.find(">", opening)
        if closing < 0:
            return " ".join("".join(words).split())
        name = page[opening + 1 : opening + 7].lower()
        at = closing + 1
        if name.startswith(_SILENT):
            end = page.find("</", at)
            if end < 0:
                return " ".join("".join(words).split())
            at = end
        words.append(" ")
    return " ".join("".join([*words, page[at:]]).split())


def _plain(name: str) -> str:
    return name[:_CODE_CHARS].lower().replace("_", "").replace("-", "")


def _codes_of(name: str, fields: dict[str, Any]) -> Iterator[str]:
    """Yield the codes of an object, which stands under this name."""
    for key, value in fields.items():
        if key in _CODES and _is_code(value) and not (key == "error" and " " in str(value)):
            yield str(value)
            if key == "blockreason" and value:
                yield "content_filter"
    if fields.get("filtered") is True or fields.get("inputsensitive") is True:
        yield "content_filter"
        yield name
    if fields.get("outputsensitive") is True:
        yield "content_filter"


def _is_code(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value) and len(value) <= _CODE_CHARS
    return isinstance(value, int) and not isinstance(value, bool)


def _places_of(fields: dict[str, Any]) -> Iterator[str]:
    """Yield the fields of the request that an object names, each as a path."""
    for key in _PLACES:
        value = fields.get(key)
        parts = value[:_MAX_ITEMS] if isinstance(value, list) else [value]
        path = ".".join(str(part) for part in parts if isinstance(part, str | int))
        if place := path[:_CODE_CHARS].removeprefix("body."):
            yield place


def _text_of(fields: dict[str, Any]) -> str:
    texts = (fields.get(name) for name in _TEXTS)
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def _other_text_of(fields: dict[str, Any]) -> str:
    """Return a sentence under a name that no known provider uses."""
    texts = (
        value
        for key, value in fields.items()
        if isinstance(value, str) and key not in _NOT_READ and key not in _CODES
    )
    return next((text[:TEXT_CHARS] for text in texts if " " in text.strip()), "")

"""Takes off what models put around an answer: thoughts before it, and a fence or a tag around it.

Every pattern in here runs in linear time.
"""

import re
from collections.abc import Iterator

_BLANKS = " \t\r\n\ufeff\u200b"
_GAP = re.compile(f"[{_BLANKS}]*")
_NAME = (
    r"(?P<name>think|thinking|thought|thoughts|reason|reasoning|reflection|scratchpad|analysis)"
    r"\|?[>\]\u25b7]"
)
# `<think>`, `[THINK]`, `<seed:think>`, `<|START_THINKING|>`, `<|begin_of_thought|>`, and the
# channels of gpt-oss.
_OPENING = re.compile(
    rf"[<\[\u25c1](?:\w{{1,20}}:|\|(?:start_|begin_(?:of_)?)?)?{_NAME}"
    r"|<\|channel\|>(?:analysis|commentary)<\|message\|>",
    re.IGNORECASE,
)
# Its first character is matched in one case only: so a search passes over all others at once.
_CLOSING = re.compile(
    rf"[<\[\u25c1](?i:(?:\|?/(?:\w{{1,20}}:)?|\|end_(?:of_)?){_NAME}"
    r"|(?<=<)\|channel\|>final<\|message\|>)"
)
_FENCES = ("```", "~~~")
_LANGUAGE = re.compile(r"[^\S\n]*+[A-Za-z][\w.+-]*+(?=[\s{\[\"])")
_TAG = re.compile(r"<(\w{1,20})>")
_LAYERS = 3  # of fences and tags around each other


def without_thoughts(text: str) -> str:
    """Return a text without the thoughts that it begins with.

    Some servers leave out the opening tag. Then the closing tag must stand on a line of its own,
    because an answer may speak of such tags.
    """
    if _CLOSING.search(text) is None:
        return text
    start = end = _after_blanks(text, 0)
    while (opening := _OPENING.match(text, end)) and (closing := _closing(text, opening)):
        end = _after_blanks(text, closing.end())
    if end > start:
        return text[end:]
    closing = _CLOSING.search(text)
    if closing is None or _OPENING.search(text, 0, closing.start()) or not _is_alone(closing):
        return text
    return text[_after_blanks(text, closing.end()) :]


def _after_blanks(text: str, start: int) -> int:
    blanks = _GAP.match(text, start)
    return start if blanks is None else blanks.end()


def _closing(text: str, opening: re.Match[str]) -> re.Match[str] | None:
    """Return the tag that ends the thoughts of an opening tag."""
    name = (opening["name"] or "").lower()
    closings = _CLOSING.finditer(text, opening.end())
    return next((tag for tag in closings if (tag["name"] or "").lower() == name), None)


def _is_alone(tag: re.Match[str]) -> bool:
    """Return whether a tag stands on a line of its own."""
    text = tag.string
    before = text[text.rfind("\n", 0, tag.start()) + 1 : tag.start()]
    after = text[tag.end() :].partition("\n")[0]
    return not before.strip() and not after.strip()


def unwrapped(text: str) -> Iterator[str]:
    """Yield what may be the JSON of an answer, the likeliest first."""
    yield _bare(text)
    last = None
    for last in _CLOSING.finditer(text):  # noqa: B007 - the last one is used after the loop
        pass
    if last is not None:
        yield _bare(without_thoughts(text))
        yield _bare(text[last.end() :])


def _bare(text: str) -> str:
    """Return a text without the fences and tags that enclose all of it."""
    for _ in range(_LAYERS):
        text = text.strip(_BLANKS)
        inner = _inside(text)
        if inner is text:
            break
        text = inner
    return text


def _inside(text: str) -> str:
    if text.startswith(_FENCES):
        inner = text.strip(text[0])
        return inner[language.end() :] if (language := _LANGUAGE.match(inner)) else inner
    tag = _TAG.match(text)
    if tag is not None and text.endswith(f"</{tag[1]}>"):
        return text[tag.end() : -len(tag[1]) - 3]
    return text

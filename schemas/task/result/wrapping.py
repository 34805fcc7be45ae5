"""Takes off what models put around an answer: thoughts before it, and a fence or a tag around it.

Every pattern in here runs in linear time.
"""

import re
from collections.abc import Iterator

_BLANKS = " \t\r\n\ufeff\u200b\u00a0"
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
    r"|(?<=<)\|channel\|>final(?: ?<\|constrain\|>\w{1,20})?<\|message\|>)"
)
_FENCES = ("`", "~~~")
_FENCE_CHARS = "`~"
_LABEL = re.compile(r"json:?(?=[\s{\[])", re.IGNORECASE)  # what is left of a lost fence
_LANGUAGE = re.compile(r"[^\S\n]*+[A-Za-z][\w.+-]*+(?=[\s{\[\"])")
_TAG = re.compile(r"<(\w{1,20})>")
# Marks of the end that a server should have taken off, such as `<|im_end|>`.
_ENDS = ("|>", "</s>")
# A text that speaks of a tag has one of these before it.
_BEFORE_NAMES = " \t`\"'(*\u201c\u201e\u00ab"
# Models have no tags of these names unless a prompt asks for them.
_OF_PROMPTS = frozenset({"analysis", "reason", "reflection", "scratchpad"})
_LAYERS = 3  # of fences, tags and marks around each other


def without_thoughts(text: str) -> str:
    """Return a text without the thoughts that it begins with.

    Some servers leave out the opening tag. Then the closing tag must end a line, because an answer
    may speak of such tags.
    """
    if _CLOSING.search(text) is None:
        return text
    start = end = _after_blanks(text, 0)
    while (
        (opening := _OPENING.match(text, end))
        and _name_of(opening) not in _OF_PROMPTS
        and (closing := _closing(text, opening))
    ):
        end = _after_blanks(text, closing.end())
    if end > start:
        return text[end:]
    closing = _CLOSING.search(text)
    if closing is None or not _is_alone(closing) or _name_of(closing) in _OF_PROMPTS:
        return text
    if _OPENING.search(text, 0, closing.start()):
        return text
    return text[_after_blanks(text, closing.end()) :]


def _after_blanks(text: str, start: int) -> int:
    blanks = _GAP.match(text, start)
    return start if blanks is None else blanks.end()


def _closing(text: str, opening: re.Match[str]) -> re.Match[str] | None:
    """Return the tag that ends the thoughts of an opening tag, also if thoughts are within them."""
    name = _name_of(opening)
    closing, end = None, opening.end()
    for tag in _CLOSING.finditer(text, opening.end()):
        if _name_of(tag) != name:
            continue
        inner = any(_name_of(tag) == name for tag in _OPENING.finditer(text, end, tag.start()))
        closing, end = tag, tag.end()
        if not inner:
            break
    return closing


def _name_of(tag: re.Match[str]) -> str:
    return (tag["name"] or "").lower()


def _is_alone(tag: re.Match[str]) -> bool:
    """Return whether a tag stands on a line of its own, or ends one without a gap before it."""
    text = tag.string
    before = text[text.rfind("\n", 0, tag.start()) + 1 : tag.start()]
    after, line_break, _ = text[tag.end() :].partition("\n")
    is_glued = bool(line_break) and before[-1:].isprintable() and before[-1:] not in _BEFORE_NAMES
    return not after.strip() and (not before.strip() or is_glued)


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
    if text.endswith(_ENDS):
        return text[: text.rfind("<")]
    if text.startswith(_FENCES) or text.endswith(_FENCES):  # either may have been lost
        inner = text.strip(_FENCE_CHARS)
        return inner[language.end() :] if (language := _LANGUAGE.match(inner)) else inner
    tag = _TAG.match(text)
    if tag is not None and text.endswith(f"</{tag[1]}>"):
        return text[tag.end() : -len(tag[1]) - 3]
    label = _LABEL.match(text)
    return text[label.end() :] if label else text

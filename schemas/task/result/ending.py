"""What a `finish_reason` says about its answer, by the roots of its words.

Servers write the same few reasons in many ways: `length`, `MAX_TOKENS`, `model_length`,
`contextLengthReached`. So the roots decide, in any case, with any prefix or suffix.
"""

import re
from enum import Enum, auto
from typing import Any

_READ_CHARS = 200
# The words of `MAX_TOKENS`, `FinishReason.STOP` and `eosFound`.
_WORD = re.compile(r"(?>(?:[A-Z](?![a-z]))+)|[A-Z]?[a-z]++")
_NAME = ("finish", "reason")  # of the enumeration itself

# A word that begins with one of these ...
_TOOLS = ("tool", "function")
_LIMITED = ("max", "context", "partial")
_WHOLE = ("stop", "end", "eos", "eot", "eom", "done", "complet", "finish", "success", "normal")
_NO_TOKENS = (
    "rate",
    "time",
    "quota",
    "user",
    "resource",
    "memory",
)  # limits of something else than the text
# ... or one of these anywhere in the text without its separators.
_FILTERED = re.compile(
    "(?<!un)filter|safety|unsafe|recitation|prohibit|blocklist|blocked|pii|sensitive|refus|moderat|guard"
    "|policy|harm|toxic|violat|armor|flagged|censor|copyright|inspection|inappropriate|disallow"
    "|risk|jailbreak|nsfw|illegal|profan"
)
_CUT = re.compile(
    "length|limit|truncat|overflow|exceed|toolong|cutoff|incomplete|unfinished|notfinished"
    "|notcomplete|exhaust|outoftoken"
)
_FAILED = re.compile(
    "error|fail|abort|cancel|timeout|timedout|deadline|unavailable|insufficient|network|overload"
    "|disconnect|interrupt|preempt|unload|crash|limit|quota|exception|invalid|userstop"
    "|killed|exhaust|outofmemory"
)


class FinishReason(Enum):
    """How an answer ended."""

    WHOLE = auto()
    CUT = auto()
    FILTERED = auto()
    FAILED = auto()  # the server failed in the middle of the answer
    TOOLS = auto()  # the model called a tool instead of answering
    MALFORMED = auto()  # the model wrote what its server cannot read
    UNKNOWN = auto()


def ending_of(reason: Any) -> FinishReason:
    """Return what a `finish_reason` says; no reason means that the answer is whole."""
    if reason is None:
        return FinishReason.WHOLE
    text = reason_text(reason)
    words = [word.lower() for word in _WORD.findall(text[:_READ_CHARS])]
    if tuple(words[:2]) == _NAME:
        del words[:2]
    if not text.strip() or words in (["none"], ["null"]):
        return FinishReason.WHOLE
    if words[:1] == ["no"]:  # `no_error` denies what it names
        return FinishReason.UNKNOWN
    return _by_roots(words, "".join(words).removeprefix("".join(_NAME)))


def _by_roots(words: list[str], joined: str) -> FinishReason:
    is_cut = _CUT.search(joined) or _begins([joined, *words], _LIMITED)
    ending = FinishReason.UNKNOWN
    if _begins(words, _TOOLS) or "functioncall" in joined or "toolcall" in joined:
        ending = FinishReason.TOOLS
    elif _FILTERED.search(joined):
        ending = FinishReason.FILTERED
    elif is_cut and not _begins(words, _NO_TOKENS):
        ending = FinishReason.CUT
    elif "malformed" in joined:
        ending = FinishReason.MALFORMED
    elif _FAILED.search(joined):
        ending = FinishReason.FAILED
    elif _begins([joined, *words], _WHOLE):
        ending = FinishReason.WHOLE
    return ending


def reason_text(reason: Any) -> str:
    """Return a reason as text; the type of one that is neither a text nor an object with one."""
    if isinstance(reason, dict):
        reason = reason.get("type") or reason.get("reason")
    return reason if isinstance(reason, str) else f"({type(reason).__name__})"


def _begins(words: list[str], roots: tuple[str, ...]) -> bool:
    return any(word.startswith(roots) for word in words)

"""Makes untrusted texts, such as a provider's errors, safe to store and to show.

Every pattern in here runs in linear time.
"""

import re
from collections.abc import Callable, Collection

TEXT_CHARS = 500
_READ_CHARS = 4000
_REPLACEMENT = "\ufffd"
_COMPARED_CHARS = 100

# A shorter text is not masked: local servers accept any word as a key, and that word may occur in
# any error.
_MIN_SECRET_CHARS = 6

_KEY = re.compile(
    r"(?i)\b(?:(?:sk|pk|rk|gsk|hf|xai|key)[-_]|AIza)[\w*.-]{6,}"
    r"|\b(?:bearer|api[_-]?key)[\\\"']*+[\s:=]++[\\\"']*+[\w*.+/=~-]{6,}"
    r"|\b(?:api key|access[_-]?key|token|secret|password)[\\\"']*+\s?[:=]\s?[\\\"']*+"
    r"[\w*.+/=~-]{16,}"
)
_BLANK = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")


_MICRO = 1_000_000
_SMALL = 0.001  # below it, four decimals have one digit or none


def units(micro: int) -> float:
    """Return an amount of millionths in whole units of the currency of the prices."""
    return micro / _MICRO


def cost_units(micro: int, unpriced: int) -> float | None:
    """Return a cost in whole units, None if it is unknown.

    The cost of `unpriced` calls is not known, and they are not in the sum.
    """
    return None if unpriced and not micro else units(micro)


def cost_text(micro: int, unpriced: int) -> str:
    """Return a cost for a person, with the number of the calls that are not in it."""
    cost = cost_units(micro, unpriced)
    if cost is None:
        return "unknown"
    without = f" without {number_of(unpriced, 'call')} of unknown cost" if unpriced else ""
    return money(cost) + without


def money(amount: float, thousands: str = ",") -> str:
    """Return an amount of the currency of the prices, small ones with all digits that are stored.

    Four decimals are enough for an amount of two digits or more there.
    """
    if 0 < amount < _SMALL:
        return f"{amount:.6f}".rstrip("0")
    return f"{amount:{thousands}.4f}"


def masking(*secrets: str) -> Callable[[bytes], bytes]:
    """Return a function that masks these secrets in a body, even in escaped JSON.

    A secret may have any form. No repr shows it.
    """
    long = [secret for secret in secrets if len(secret) >= _MIN_SECRET_CHARS]
    if not long:
        return bytes
    # The longest first: it may hold another one.
    alternatives = map(_escaped_or_not, sorted(long, key=len, reverse=True))
    pattern = re.compile("|".join(alternatives).encode())
    return lambda body: pattern.sub(b"***", body)


def _escaped_or_not(secret: str) -> str:
    """Return a pattern of the text, with or without the escapes of JSON."""
    return "".join(rf"(?:\\?{re.escape(char)}|\\u(?i:{ord(char):04x}))" for char in secret)


def number_of(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 attempt` or `2 attempts`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def did_you_mean(name: str, known: Collection[str], otherwise: str | None = None) -> str:
    """Return the question for the known name that is most like a wrong one.

    Without any, it is `otherwise`, or else a list of what is known.
    """
    import difflib  # noqa: PLC0415 - errors alone need it

    # To compare names takes time that grows with the square of their lengths.
    matches = difflib.get_close_matches(name[:_COMPARED_CHARS], known, 1)
    if matches:
        return f"did you mean {matches[0]}?"
    return f"known are: {', '.join(known)}" if otherwise is None else otherwise


def one_line(text: str) -> str:
    """Return the text on one line of at most 500 characters, without keys.

    Every database can store the result, and no terminal acts on it. Half a surrogate pair, marks
    that change the direction of text, and invisible characters become U+FFFD.
    """
    flat = _BLANK.sub(" ", text[:_READ_CHARS]).strip()
    if not flat.isprintable():
        flat = "".join(letter if letter.isprintable() else _REPLACEMENT for letter in flat)
    return _KEY.sub("***", flat)[:TEXT_CHARS]

"""Signs of documents that are text by their bytes, but cannot be read as they are.

All are looked for in a few bytes, or by one pass of C.
"""

import re
from collections.abc import Callable, Iterator

_HEADS_BYTES = 256 << 10
_ZEROS_BYTES = 64 << 10
_NAMED_WITHIN = 1024
_NAME = re.compile(rb"[!-9;-~]{1,76}:")
_MIME = (b"mime-version:", b"content-transfer-encoding:", b"content-type:multipart/")
_PAGE = b"content-type:text/html"  # in a mail without other signs
# Two of these make a head: many a text begins with lines of names.
_OF_MAILS = frozenset(
    b"content-transfer-encoding content-type date from message-id mime-version received "
    b"return-path subject to".split()
)
_BEFORE = b"\xef\xbb\xbf\r\n"
_FROM = b"From "
_SAMPLE_BYTES = 256 << 10
# How ISO-2022 begins a set of characters; colours of a terminal look otherwise.
_SHIFT = re.compile(rb"\x1b(?:\$[@AB]|\$[()][A-Z@]|\([JI])")
_ISO_2022 = ("iso2022_jp_2", "iso2022_jp_ext", "iso2022_jp_2004")
_KOREAN = b"\x1b$)C"
_HZ = re.compile(rb"~\{(?>(?:[!-w][!-~])+)")
_HZ_END = b"~}"
_UTF_7 = re.compile(rb"\+([A-Za-z0-9+/]{3,}+)-?")
_UTF_7_MARKS = (b"+/v8", b"+/v9", b"+/v+", b"+/v/")
_MIN_SEQUENCES, _MIN_LETTERS = 3, 6


def is_mail(raw: bytes) -> bool:
    """Return whether bytes are a mail that is encoded: a plain one is read as it is."""
    heads = list(_heads(raw))
    names = {head.partition(b":")[0] for head in heads}
    is_head = len(names & _OF_MAILS) > 1 or names <= _OF_MAILS
    return is_head and any(head.startswith((*_MIME, _PAGE)) for head in heads)


def is_mailbox(raw: bytes) -> bool:
    """Return whether bytes are several mails in one file, of which one is encoded."""
    if not raw.startswith(_FROM) or b"\n" + _FROM not in raw or not any(_heads(raw)):
        return False
    lower = raw.lower()
    return any(b"\n" + sign in lower for sign in _MIME)


def seven_bit_encoding(raw: bytes) -> str | None:
    """Return the encoding of a text in ASCII bytes that stand for others; None if they do not."""
    if not raw.isascii():
        return None
    sample = raw[:_SAMPLE_BYTES]
    if _KOREAN in sample:
        return "iso2022_kr"
    if _SHIFT.search(sample):
        return next((name for name in _ISO_2022 if _decodes(sample, name)), _ISO_2022[0])
    if any(sample.startswith(_HZ_END, at) for at in _ends(sample)) and _decodes(sample, "hz"):
        return "hz"
    if raw.startswith(_UTF_7_MARKS) or (b"+" in sample and _is_utf_7(sample)):
        return "utf-7"
    return None


def _ends(sample: bytes) -> Iterator[int]:
    return (match.end() for match in _HZ.finditer(sample))


def _heads(raw: bytes) -> Iterator[bytes]:
    """Yield the heads of a mail in small letters without blanks; nothing if it has none."""
    top = raw[:_NAMED_WITHIN].lstrip(_BEFORE)
    if not top.startswith(_FROM) and _NAME.match(top) is None:
        return
    text = raw[:_HEADS_BYTES].lstrip(_BEFORE).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = text.partition(b"\n\n")[0].replace(b"\n ", b"").replace(b"\n\t", b"").split(b"\n")
    if lines[0].startswith(_FROM):
        lines = lines[1:]
    if all(map(_NAME.match, lines)):
        yield from (line.lower().replace(b" ", b"") for line in lines)


def utf_16_without_mark(raw: bytes) -> str | None:
    """Return which UTF-16 a text with zero bytes is in; None if it is in none."""
    sample = raw[:_ZEROS_BYTES]
    sides = {"utf_16_le": sample[1::2].count(0), "utf_16_be": sample[::2].count(0)}
    if len(raw) % 2 or len(sample) < 2 * _MIN_LETTERS:
        return None
    shown = [name for name in sides if _is_shown(sample, name)]
    return max(shown, key=lambda name: sides[name], default=None)


def _is_shown(sample: bytes, encoding: str) -> bool:
    try:
        text = sample.decode(encoding)
    except UnicodeDecodeError as error:
        text = sample[: error.start].decode(encoding) if error.start > len(sample) - 4 else "\0"
    return all(char.isprintable() or char.isspace() for char in text)


def _decodes(sample: bytes, encoding: str) -> bool:
    """Return whether a sample, which may end within a character, is text in an encoding."""
    try:
        sample.decode(encoding)
    except UnicodeDecodeError as error:
        return len(sample) == _SAMPLE_BYTES and error.start > _SAMPLE_BYTES - 8
    return True


def _is_utf_7(sample: bytes) -> bool:
    """Return whether each of several `+...-` stands for letters of one script, as in no prose."""
    found = _UTF_7.findall(sample)
    if not found or not _decodes(sample, "utf-7"):
        return False
    texts = list(_decoded(found))
    if len(texts) < _MIN_SEQUENCES and sum(map(len, texts)) < _MIN_LETTERS:
        return False
    return all(any(rule(text) for rule in _SCRIPTS) for text in texts)


def _decoded(found: list[bytes]) -> Iterator[str]:
    for sequence in found:
        yield (b"+" + sequence + b"-").decode("utf-7", "replace")


def _is_of_alphabet(text: str) -> bool:
    return all("\xa0" <= char < "\u0600" or "\u2010" <= char < "\u20b0" for char in text)


def _is_of_east_asia(text: str) -> bool:
    return len(text) > 1 and all(
        "\u3000" <= char < "\ua000" or "\uac00" <= char < "\ud7b0" for char in text
    )


_SCRIPTS: tuple[Callable[[str], bool], ...] = (_is_of_alphabet, _is_of_east_asia)

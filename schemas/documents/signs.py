"""Signs of documents that are text by their bytes, but cannot be read as they are.

All are looked for in a few bytes, or by one pass of C.
"""

import re
from collections.abc import Callable, Iterator

_HEADS_BYTES = 64 << 10
_NAME = re.compile(rb"[!-9;-~]{1,76}:")
_MIME = (b"mime-version:", b"content-transfer-encoding:", b"content-type: multipart/")
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
    names = list(_heads(raw))
    return any(name.startswith(_MIME) for name in names)


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
    """Yield the lines of a mail's head in small letters; nothing if it is no head."""
    if not raw.startswith(_FROM) and _NAME.match(raw) is None:
        return
    lines = raw[:_HEADS_BYTES].replace(b"\r\n", b"\n").partition(b"\n\n")[0].split(b"\n")
    if lines[0].startswith(_FROM):
        lines = lines[1:]
    if all(line[:1] in b" \t" or _NAME.match(line) for line in lines):
        yield from (line.lower() for line in lines)


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

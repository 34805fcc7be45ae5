"""Tells the encoding of a text by its language: read wrongly, its words are those of none.

Each decoding of a sample is searched for the commonest words of each language. In the right one
they are frequent, and the other words consist of that language's letters.
"""

import re
from collections import Counter
from functools import cache, cached_property
from typing import NamedTuple

from docllm.schemas.documents.languages import LANGUAGES, Language

# The most usual first: it wins where several make the same text of the bytes.
_ENCODINGS = (
    "cp1252 cp1250 cp1251 cp1253 cp1254 cp1255 cp1256 cp1257 cp874 koi8_r koi8_u cp932 euc_jp "
    "gb18030 big5hkscs cp949 iso8859_2 iso8859_4 iso8859_5 iso8859_6 iso8859_7 iso8859_10 "
    "iso8859_13 iso8859_15 cp437 cp737 cp775 cp850 cp852 cp855 cp857 cp861 cp862 cp865 "
    "cp866 mac_roman mac_latin2 mac_croatian mac_romanian mac_turkish mac_iceland mac_cyrillic "
    "mac_greek"
).split()
_SAMPLE_BYTES = 16 << 10
_SEARCHED_BYTES = 1 << 20
_AROUND_BYTES = 40  # of a rare byte
_ASCII = bytes(range(128))
_TAG = re.compile(rb"<[/a-zA-Z][^<>]*+>|&[a-z]{2,6};")
_TYPED = "\xa0«»·°©®™“”„‚‘’‹›–—…¡¿§€£•×"
_RAISED = "²³ªº°"
_BREAKS = re.compile(rf"[\s\d!-/:-@\[-`{{-~{_TYPED}]++")
# What stands in no text, or between letters only if it is a letter of another encoding.
_MISPLACED = re.compile(r"[\x80-\x9f\ufffd]|(?<=[^\W\d_])[«»°©®™“”„‚‹›¡¿§€£•×](?=[^\W\d_])")
_MIN_WORDS = 2
# How much of a text consists of the commonest words of its language, or of its commonest
# characters; of words that are ASCII, in another alphabet, nothing is known.
_MIN_SHARE, _MIN_CHARACTERS = 0.04, 0.05
_MAX_ODD = 0.05  # of what is beyond ASCII may have letters of other languages
_MIN_ODD = 3  # words in every other decoding, for one to be certain; it needs more than these


class Guess(NamedTuple):
    """An encoding by its name, and whether no other one makes sense of the text."""

    encoding: str
    is_certain: bool


class _Decoding:
    """A sample as one encoding reads it."""

    def __init__(self, encoding: str, sample: bytes) -> None:
        self.encoding = encoding
        self.text = sample.decode(encoding, "replace")
        self.words = Counter(filter(None, _BREAKS.split(self.text)))
        self.small: Counter[str] = Counter()
        for word, count in self.words.items():
            self.small[word.lower()] += count
        self.beyond = {word: count for word, count in self.words.items() if not word.isascii()}
        self.total = sum(self.beyond.values())

    def share(self, language: Language) -> float:
        """Return how much of the text is a language's commonest words; 0.0 if it is not in it."""
        if language.encodings:
            is_other = self.encoding not in language.encodings
            found = 0 if is_other else sum(len(w) * self.text.count(w) for w in language.words)
            share = found / max(1, self._characters.total())
            return share if share >= _MIN_CHARACTERS else 0.0
        counts = [self.small[word] for word in language.words if word in self.small]
        of = self.total if language.is_beyond_ascii else self.small.total()
        share = sum(counts) / max(1, of) if len(counts) >= _MIN_WORDS else 0.0
        return share if share >= _MIN_SHARE else 0.0

    def fit(self, language: Language) -> "_Fit | None":
        """Return how the text looks in a language; None if too much is odd in it, or nothing is."""
        letters = _letters(language)
        if language.encodings:
            total = self._characters.total()
            odd = sum(n for char, n in self._characters.items() if not letters.fullmatch(char))
        else:
            total = self.total + sum(map(self.text.count, _TYPED))
            odd = self._misplaced + sum(
                n for word, n in self.beyond.items() if not _is_of(word, letters)
            )
        if not total or odd > total * _MAX_ODD:
            return None
        return _Fit(self.encoding, self.text, odd, total)

    @cached_property
    def _characters(self) -> Counter[str]:
        return Counter(char for char in self.text if char > "\x7f" and char not in _TYPED)

    @cached_property
    def _misplaced(self) -> int:
        return len(_MISPLACED.findall(self.text))


class _Fit(NamedTuple):
    """A decoding in one language, in which `odd` of the `total` words beyond ASCII are odd."""

    encoding: str
    text: str
    odd: int
    total: int


def guessed_encoding(raw: bytes) -> Guess | None:
    """Return the encoding of bytes that are not UTF-8; None if they look like text in none."""
    sample = _sample(raw)
    decodings = [_Decoding(name, sample) for name in _ENCODINGS]
    shares = [
        (share, decoding, language)
        for decoding in decodings
        for language in LANGUAGES
        if (share := decoding.share(language))
    ]
    fits = [
        (share, fit)
        for share, decoding, language in shares
        if (fit := decoding.fit(language)) and fit.total > _MIN_ODD
    ]
    if fits:
        most = max(share for share, _ in fits)
        return _best([fit for share, fit in fits if share * 2 >= most])
    unnamed = [
        fit
        for decoding in decodings
        for language in LANGUAGES
        if not language.encodings and (fit := decoding.fit(language))
    ]
    if unnamed:
        return Guess(min(unnamed, key=lambda fit: fit.odd).encoding, is_certain=False)
    is_mostly_ascii = len(sample.translate(None, _ASCII)) < len(sample) / 4
    return Guess(_ENCODINGS[0], is_certain=False) if is_mostly_ascii else None


def _best(fits: list[_Fit]) -> Guess:
    best = min(fits, key=lambda fit: fit.odd)
    least = min((fit.odd for fit in fits if fit.text != best.text), default=None)
    return Guess(best.encoding, least is None or least >= _MIN_ODD + 3 * best.odd)


def _sample(raw: bytes) -> bytes:
    """Return the first lines that are not ASCII, without tags, and each byte that is in a text."""
    searched = _TAG.sub(b" ", raw[:_SEARCHED_BYTES])
    lines = b"\n".join(line for line in searched.split(b"\n") if not line.isascii())
    sample = lines
    if len(lines) > _SAMPLE_BYTES:
        sample = lines[: lines.rfind(b" ", 0, _SAMPLE_BYTES) + 1] or lines[:_SAMPLE_BYTES]
    for byte in sorted(set(raw.translate(None, _ASCII)) - set(sample)):
        at = raw.find(byte)
        sample += b"\n" + raw[max(0, at - _AROUND_BYTES) : at + _AROUND_BYTES]
    return sample


def _is_of(word: str, letters: re.Pattern[str]) -> bool:
    """Return whether a word has a language's letters alone, and no great one after small ones."""
    is_cased = word[1:].lower() == word[1:] or word.upper() == word
    return is_cased and letters.fullmatch(word.lower()) is not None


@cache
def _letters(language: Language) -> re.Pattern[str]:
    if language.encodings:
        return re.compile(f"[{language.letters}]")
    return re.compile(f"µ?+[a-z{language.letters}]*+[{_RAISED}]?+|[{_RAISED}¼½¾]")

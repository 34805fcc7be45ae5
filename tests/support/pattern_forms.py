"""Judges by its form whether a regular expression takes time in proportion to its text.

`re` backtracks: it may read the same text once for each way to divide it among repetitions, and
once for each place at which a search may begin. Three rules exclude both, without a measurement:

1. A repetition without a small bound is possessive (`*+`), or the last part of an atomic group
   (`(?>(?:...)*)`), or repeats one character as the last part of the expression: a text has few
   divisions among the others.
2. Where the text is searched, what may fail comes before such a repetition, not after it; or no
   match can begin within the text that the repetition takes.
3. Where a repeated group has such a repetition in a part that may fail, no other part of the group
   matches the same text instead.
"""

import importlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import chain, combinations
from typing import Any

_parser: Any = importlib.import_module("re._parser")
CODES: Any = importlib.import_module("re._constants")

# More repetitions than this, counted through nested groups, have no small bound.
_MOST_COUNTED = 1000
# In more ways than this a text may not be divided among the parts of an expression.
_MOST_WAYS = 100_000
# Characters that stand for all others: each form of letter, digit and blank of Unicode.
_OTHERS = (
    "\x80\x85\xa0\xad\xb5\xdf\xe9\u0130\u017f\u0660\u200b\u2028\u3000\u4e00\ud800\ufeff\U0001f600"
)
_ALPHABET = frozenset(map(chr, range(128))) | frozenset(_OTHERS)
REPEATS = {CODES.MAX_REPEAT, CODES.MIN_REPEAT, CODES.POSSESSIVE_REPEAT}
LOOKS = {CODES.ASSERT, CODES.ASSERT_NOT}
_CATEGORIES = {
    CODES.CATEGORY_DIGIT: r"\d",
    CODES.CATEGORY_NOT_DIGIT: r"\D",
    CODES.CATEGORY_SPACE: r"\s",
    CODES.CATEGORY_NOT_SPACE: r"\S",
    CODES.CATEGORY_WORD: r"\w",
    CODES.CATEGORY_NOT_WORD: r"\W",
}


Part = tuple[Any, Any]
Letters = frozenset[str]

DIVIDES = "a repetition may give back what it took: make it possessive (`*+`, `++`), or count it"
REREADS = (
    "a search may read the same text from each place in it: end the expression with the repetition,"
    " begin it with what the repetition does not take, or use match() on a part that was cut out"
)
REPEATED = "a repeated part that fails may be read again by another one: let them begin differently"
GROUPS = "Python before 3.11.5 repeats a group wrongly by `*+`: write `(?>(?:...)*)`"
REFERS = "a reference to a group of any length: capture one character, or write a scanner"


class _Last(Enum):
    """What comes after a part: another part, the end of a text or search, or nothing at all."""

    NOT = 0
    OF_TEXT = 1
    OF_PART = 2


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a part stands: what must match before it, and whether something may fail after it.

    `first` are the sets of letters that a match must have passed to come here; `guards` those
    within which no match can begin, by a look behind.
    """

    before: tuple[Letters, ...] = ()
    guards: tuple[Letters, ...] = ()
    may_fail_after: bool = False
    is_repeated: bool = False


def parse(pattern: str | bytes, flags: int = 0) -> list[Part]:
    """Return the parts of an expression, as `re` reads it."""
    return list(_parser.parse(pattern, flags))


def bodies(part: Part) -> list[list[Part]]:
    """Return the parts inside a part: several lists for alternatives, one for a group."""
    code, value = part
    if code is CODES.BRANCH:
        return list(map(list, value[1]))
    if code is CODES.GROUPREF_EXISTS:
        return [list(branch) for branch in value[1:] if branch is not None]
    if code is CODES.ATOMIC_GROUP:
        return [list(value)]
    index = 3 if code is CODES.SUBPATTERN else 2 if code in REPEATS else 1
    return [list(value[index])] if code is CODES.SUBPATTERN or code in REPEATS | LOOKS else []


def _looks_ahead(part: Part) -> bool:
    code, value = part
    return code is CODES.ASSERT_NOT or (code is CODES.ASSERT and value[0] > 0)


class Form:
    """The form of one expression; `searches` says that a match may begin anywhere in a text."""

    def __init__(self, pattern: str | bytes, flags: int = 0, *, searches: bool) -> None:
        tree = _parser.parse(pattern, flags)
        # A group's own flag counts for all: more letters are then alike.
        source = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
        self._flags = tree.state.flags | (re.IGNORECASE if "(?i" in source else 0)
        self._tree = tree
        self._source, self._is_bytes = source, isinstance(pattern, bytes)
        self._searches = searches
        self._groups: dict[int, Any] = {}

    def faults(self) -> list[str]:
        """Return what makes the expression slow, once each; nothing if it is linear."""
        parts = list(self._tree)
        faults = list(self._of_parts(parts, _Place()))
        divides = self._ways(parts, last=_Last.OF_TEXT) > _MOST_WAYS
        return list(dict.fromkeys([DIVIDES, *faults] if divides else faults))

    def _of_whole(self, parts: Sequence[Part], place: _Place) -> Iterator[str]:
        """Yield the faults of parts that are never entered again once they have matched."""
        if self._ways(parts, last=_Last.OF_PART) > _MOST_WAYS:
            yield DIVIDES
        yield from self._of_parts(parts, place)

    def _of_parts(self, parts: Sequence[Part], place: _Place) -> Iterator[str]:
        """Yield the faults of a sequence of parts."""
        before, guards = place.before, place.guards
        for index, part in enumerate(parts):
            here = replace(
                place,
                before=before,
                guards=guards,
                may_fail_after=place.may_fail_after or any(map(self._may_fail, parts[index + 1 :])),
            )
            yield from self._of_part(part, here)
            guards += self._guards_of(part) if not before else ()
            before += tuple(self._passed(part))

    def _of_part(self, part: Part, place: _Place) -> Iterator[str]:
        code, value = part
        if code in REPEATS:
            yield from self._of_repeat(part, place)
        elif code in LOOKS:
            yield from self._of_whole(bodies(part)[0], replace(place, may_fail_after=True))
            if place.is_repeated and self._is_long([part]):
                yield REPEATED
        elif code is CODES.GROUPREF:
            if self._is_long(self._groups.get(value, [])):
                yield REFERS
        else:
            for body in bodies(part):
                is_whole = code is CODES.ATOMIC_GROUP
                yield from (self._of_whole if is_whole else self._of_parts)(body, place)
            if place.is_repeated:
                yield from self._of_alternatives(bodies(part))
            if code is CODES.SUBPATTERN:
                self._groups[value[0]] = bodies(part)[0]

    def _of_repeat(self, part: Part, place: _Place) -> Iterator[str]:
        (code, (least, most, _body)), body = part, bodies(part)[0]
        is_long = most > 1 and self._is_long([part])
        if is_long and self._rereads(body, place):
            yield REREADS
        if self._letters(body) is None:
            repeated = replace(place, is_repeated=place.is_repeated or is_long)
            is_whole = code is CODES.POSSESSIVE_REPEAT
            if is_whole:
                yield GROUPS
            yield from (self._of_whole if is_whole else self._of_parts)(body, repeated)
            if place.is_repeated and least == 0:
                yield from self._of_alternatives([body, []])

    def _rereads(self, body: list[Part], place: _Place) -> bool:
        """Return whether a search may begin within what a repetition has read for nothing."""
        if not self._searches or not place.may_fail_after:
            return False
        taken = self._taken(body)
        before = any(letters.isdisjoint(taken) for letters in place.before)
        return not before and not any(taken <= guard for guard in place.guards)

    def _of_alternatives(self, branches: list[list[Part]]) -> Iterator[str]:
        for branch in branches:
            others = [other for other in branches if other is not branch]
            if self._fails_late(branch) and any(self._meet(branch, other) for other in others):
                yield REPEATED

    def _fails_late(self, parts: list[Part]) -> bool:
        """Return whether parts may fail after they have read much."""
        for index, part in enumerate(parts):
            if self._is_long([part]) and (
                any(map(self._may_fail, parts[index + 1 :])) or self._fails_within(part)
            ):
                return True
        return False

    def _fails_within(self, part: Part) -> bool:
        code, value = part
        again = code in REPEATS and value[0] > 1 and self._is_long([part])
        return again or code in LOOKS or any(map(self._fails_late, bodies(part)))

    def _meet(self, one: list[Part], other: list[Part]) -> bool:
        """Return whether two alternatives may match the same text, by their first letters."""
        pairs = zip(self._prefix(one), self._prefix(other), strict=False)
        return not any(letters.isdisjoint(others) for letters, others in pairs)

    def _prefix(self, parts: list[Part]) -> list[Letters]:
        """Return the sets of the letters with which parts begin, one after the other."""
        prefix: list[Letters] = []
        for part in parts:
            code, value = part
            if (letters := self._letters([part])) is not None:
                prefix.append(letters)
            elif code is CODES.SUBPATTERN:
                inner = list(value[3])
                prefix += self._prefix(inner)
                if any(self._letters([one]) is None for one in inner):
                    break
            elif code in REPEATS and value[0] and self._letters(list(value[2])) is not None:
                prefix += [self._taken(list(value[2]))] * min(value[0], 8)
                break
            elif code is not CODES.AT:
                break
        return prefix

    def _passed(self, part: Part) -> Iterator[Letters]:
        """Yield sets of letters, one of each of which any match of a part has passed."""
        code, value = part
        if (letters := self._letters([part])) is not None:
            yield letters
        elif code is CODES.BRANCH:
            passed = [list(chain.from_iterable(map(self._passed, body))) for body in bodies(part)]
            if all(passed):
                yield frozenset().union(*(sets[0] for sets in passed))
        elif not (code in REPEATS and value[0] == 0) and not _looks_ahead(part):
            for body in bodies(part):
                yield from chain.from_iterable(map(self._passed, body))

    def _guards_of(self, part: Part) -> tuple[Letters, ...]:
        """Return the letters within a run of which this part lets no match begin."""
        code, value = part
        if code is CODES.ASSERT_NOT and value[0] < 0:
            letters = self._letters(list(value[1]))
            return () if letters is None else (letters,)
        if code is CODES.AT and value is CODES.AT_BOUNDARY:
            return (self._matched(r"\w"),)
        if code is CODES.AT and value in {CODES.AT_BEGINNING_STRING, CODES.AT_BEGINNING}:
            is_line = value is CODES.AT_BEGINNING and self._flags & re.MULTILINE
            return (_ALPHABET - {"\n"} if is_line else self._all,)
        return ()

    @cached_property
    def _all(self) -> Letters:
        return _ALPHABET | self._literals

    def _may_fail(self, part: Part) -> bool:
        code, value = part
        if code in REPEATS and value[0] == 0:
            return False
        inner = bodies(part)
        if code in LOOKS or not inner:
            return True
        return all(any(map(self._may_fail, body)) for body in inner)

    def _ways(self, parts: Sequence[Part], *, last: _Last) -> float:
        """Return in how many ways parts may match the same text; they are tried one by one."""
        rest = [_Last.NOT] * (len(parts) - 1) + [last]
        return math.prod(
            self._ways_of(part, last=after) for part, after in zip(parts, rest, strict=False)
        )

    def _ways_of(self, part: Part, *, last: _Last) -> float:
        (code, value), inner = part, bodies(part)
        if code is CODES.SUBPATTERN:
            return self._ways(inner[0], last=last)
        if code is CODES.BRANCH:
            each = [self._ways(branch, last=last) for branch in inner]
            differ = not any(self._meet(*pair) for pair in combinations(inner, 2))
            return max(each) if differ else sum(each)
        if code not in {CODES.MAX_REPEAT, CODES.MIN_REPEAT}:
            return 1
        least, most, _ = value
        is_last = last is not _Last.NOT and code is CODES.MAX_REPEAT
        if self._letters(inner[0]) is not None:
            return 1 if is_last else float(most - least + 1)
        if is_last and last is _Last.OF_PART:  # a repetition that matched is never entered again
            return self._ways(inner[0], last=_Last.NOT)
        ways = self._ways(inner[0], last=last if most == 1 else _Last.NOT)
        return float(most - least + 1) * float(min(ways, 1e9) ** min(most, 30))

    def _is_long(self, parts: list[Part]) -> bool:
        return self._times(parts) > _MOST_COUNTED

    def _times(self, parts: Sequence[Part]) -> int:
        """Return how many letters parts repeat at most, without the letters that stand alone."""
        return sum(map(self._times_of, parts))

    def _times_of(self, part: Part) -> int:
        times = max(map(self._times, bodies(part)), default=0)
        code, value = part
        return int(value[1]) * max(1, times) if code in REPEATS else times

    def _taken(self, parts: Sequence[Part]) -> Letters:
        """Return all letters that parts may take."""
        return frozenset().union(*map(self._taken_by, parts))

    def _taken_by(self, part: Part) -> Letters:
        if (letters := self._letters([part])) is not None:
            return letters
        if part[0] in LOOKS or part[0] is CODES.AT:
            return frozenset()
        inner = bodies(part)
        return frozenset().union(*map(self._taken, inner)) if inner else self._all

    def _letters(self, parts: Sequence[Part]) -> Letters | None:
        """Return the letters of parts that match one letter; None for all other parts."""
        if len(parts) != 1:
            return None
        code, value = parts[0]
        if code in {CODES.SUBPATTERN, CODES.BRANCH}:
            each = [self._letters(body) for body in bodies(parts[0])]
            known = [letters for letters in each if letters is not None]
            return frozenset().union(*known) if len(known) == len(each) else None
        if code is CODES.ANY:
            return self._all if self._flags & re.DOTALL else self._all - {"\n"}
        if code is CODES.NOT_LITERAL:
            return self._all - self._cases({chr(value)})
        items = value if code is CODES.IN else parts
        return self._of_class(items) if code in {CODES.IN, CODES.LITERAL} else None

    def _of_class(self, items: Sequence[Part]) -> Letters:
        letters: Letters = frozenset()
        for code, value in items:
            if code is CODES.LITERAL:
                letters |= self._cases({chr(value)})
            elif code is CODES.RANGE:
                low, high = value
                inside = {letter for letter in self._all if low <= ord(letter) <= high}
                letters |= self._cases(inside)
            elif code is CODES.CATEGORY:
                letters |= self._matched(_CATEGORIES[value])
        return self._all - letters if items[0][0] is CODES.NEGATE else letters

    def _matched(self, form: str) -> Letters:
        flags = re.ASCII if self._flags & re.ASCII or self._is_bytes else 0
        return frozenset(letter for letter in self._all if re.match(form, letter, flags))

    def _cases(self, letters: set[str]) -> Letters:
        if not self._flags & re.IGNORECASE:
            return frozenset(letters)
        both = {case for letter in letters for case in (letter.lower(), letter.upper())}
        return frozenset(letters | {case for case in both if len(case) == 1})

    @cached_property
    def _literals(self) -> Letters:
        """Return the letters that the expression names."""
        return frozenset(self._source)

"""Makes words of an error's text; what repeats the request or the document is left out.

Quoted texts of several words are never read. In a sentence about a field, a tool or a schema, the
names of the request are not read either: a property may be called `balance`.
"""

import re

_FIELDS = ("message", "detail", "error", "msg", "code", "type", "status")
# Matches a quoted text, which may be cut, with the message field's name before it. Apostrophes and
# the quotation marks around JSON do not count as quotes.
_QUOTED = re.compile(
    rf"""((?P<mark>["'])(?:{"|".join(_FIELDS)})(?P=mark)\s*+:\s*+)?"""
    r"""(?P<quote>"|`|(?<!\w)'(?![{\[]))"""
    r"(?P<said>(?>(?:\\.|(?!(?P=quote))[^\\]|(?<=\w)'(?=\w))*))(?:(?P=quote)|\\)?",
    re.DOTALL,
)
_ADDRESS = re.compile(r"https?://[^\s)>\]]*+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[<>]=?|-?[0-9][0-9.,]*+|[^\W\d]++")
_PARTS = re.compile(r"[.\[\]~]++")
# A sentence with one of these is about a part of the request. Its names are those that are quoted,
# or have an `_` or a dot; the names of the input and of its limits are kept.
_OF_REQUEST = re.compile(
    r"(?i)\b(?:fields?|propert(?:y|ies)|parameters?|params?|arguments?|schemas?|enum|tools?"
    r"|functions?|tool_choice|response_format|required key|one of|valid values?|expected one"
    r"|unknown variant)\b"
)
IS_OF_REQUEST = " ~request~ "  # stands in the words of such a sentence
_INPUT_NAMES = frozenset(
    "inputs input prompt messages message contents body n_ctx max_model_len max_seq_len input_ids "
    "input_tokens prompt_tokens max_tokens max_completion_tokens max_output_tokens max_new_tokens "
    "max_input_tokens max_length max_input_length max_total_tokens model".split()
)
# Places of the key, or no place at all.
_OTHER_PLACES = frozenset(
    "none null header headers query authorization api_key apikey key token x-api-key".split()
)
_OPENING = "\"'`\u201c\u2018«「"
_MARKS = _OPENING + "\u201d\u2019»」()<>,:;=*"
# Phrases in which a root means something else.
_SAYS_NOTHING = tuple(
    f" {phrase} "
    for phrase in (
        "input should be",
        "input validation error",
        "input argument",
        "no credits were charged",
        "no credit was charged",
        "check your plan and billing details",
        "case sensitive",
        "credits have been refunded",
    )
)


def unquoted(text: str) -> str:
    """Return the text without its quoted parts.

    Quoted names, of one word, stay. So does the message of an error that is quoted as JSON.
    """
    return _QUOTED.sub(_kept_part, text)


def _kept_part(match: re.Match[str]) -> str:
    if match["mark"]:
        return unquoted(match["said"])
    return "" if len(match["said"].split()) > 1 else match[0]


def words_of_text(text: str) -> str:
    """Return the words of an error's text, without quoted texts, addresses and foreign names."""
    said = _ADDRESS.sub(" ", unquoted(text))
    if _OF_REQUEST.search(said):
        return words_of(_without_names(said)) + IS_OF_REQUEST
    return words_of(said)


def words_of(text: str) -> str:
    """Return a text as lower-case words, with one blank around each.

    Names such as `RateLimitError` become words; `max_tokens` stays one, with its `_` as `~`. A text
    of one name is a code.
    """
    if "_" in text and " " not in text.strip():
        return words_of_code(text)
    words = " ".join(_WORD.findall(_CAMEL.sub(" ", text).lower()))
    words = f" {words} ".replace("_", "~")
    for phrase in _SAYS_NOTHING:
        words = words.replace(phrase, " ")
    return words


def words_of_code(code: str) -> str:
    """Return a code, such as `context_length_exceeded`, as words."""
    return words_of(code.replace("_", " "))


def words_of_place(place: str) -> str:
    """Return a field of the request, such as `messages.0.content`, as words."""
    return f" {' '.join(filter(None, _PARTS.split(place.lower())))} ".replace("_", "~")


def is_input(name: str) -> bool:
    """Return whether a field of the request holds the input, or limits it, or chooses the model."""
    return _first_part(name) in _INPUT_NAMES


def decides(place: str) -> bool:
    """Return whether a refusal that names this field may be about more than the field."""
    return " " in place or is_input(place) or _first_part(place) in _OTHER_PLACES


def _first_part(name: str) -> str:
    return next(filter(None, _PARTS.split(name.lower())), "")


def _without_names(text: str) -> str:
    kept = []
    for word in text.split():
        name = word.strip(_MARKS)
        is_quoted = word[:1] in _OPENING and name != word
        is_name = is_quoted or "_" in name or _PARTS.search(name.rstrip(".")) is not None
        kept.append(word if not is_name or is_input(name) else "")
    return " ".join(kept)

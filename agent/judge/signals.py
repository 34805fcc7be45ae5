"""Classifies unsuccessful replies by a table of statuses, error codes and words."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import orjson

from agent.ports.outcome import Failure
from schemas.task.failures import ErrorClass
from schemas.task.provider_error import provider_error_of
from schemas.text.wording import TEXT_CHARS, one_line

_NESTED = ("error", "innererror", "inner_error", "details", "metadata")
_CODES = ("code", "type", "status", "error_code")
_TEXTS = ("message", "detail", "error", "msg")
_DEPTH = 4
_ERRORS = range(400, 600)
_STATUS = re.compile("[45][0-9]{2}")
# Matches a quoted text, which may be cut, with the message field's name before it. Apostrophes and
# the quotation marks around JSON do not count as quotes.
_QUOTED = re.compile(
    rf"""((?P<mark>["'])(?:{"|".join(_TEXTS)})(?P=mark)\s*+:\s*+)?"""
    r"""(?P<quote>"|`|(?<!\w)'(?![{\[]))"""
    r"(?P<said>(?>(?:\\.|(?!(?P=quote))[^\\]|(?<=\w)'(?=\w))*))(?:(?P=quote)|\\)?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Signal:
    """A row of the table.

    Its codes decide under any error status, its words only under the row's own statuses. A row
    without codes and words fits every reply with one of its statuses.
    """

    statuses: frozenset[int]
    error_class: ErrorClass
    codes: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()

    def fits(self, status: int, codes: frozenset[str], text: str) -> bool:
        """Return whether the reply has this signal; `codes` and `text` are in lower case."""
        if status in _ERRORS and not self.codes.isdisjoint(codes):
            return True
        if status not in self.statuses:
            return False
        return (not self.codes and not self.words) or any(word in text for word in self.words)


def _row(statuses: str, error_class: ErrorClass, codes: str = "", words: str = "") -> Signal:
    """Return a row. `4xx` means a hundred statuses; `words` are separated by bars."""
    numbers: set[int] = set()
    for name in statuses.split():
        if name.endswith("xx"):
            numbers.update(range(int(name[0]) * 100, int(name[0]) * 100 + 100))
        else:
            numbers.add(int(name))
    return Signal(
        frozenset(numbers),
        error_class,
        frozenset(codes.lower().split()),
        tuple(filter(None, words.lower().split("|"))),
    )


_MONEY_CODES = (
    "insufficient_quota credit_balance_exhausted organization_spend_limit_exceeded "
    "project_spend_limit_exceeded insufficient_balance organization_usage_limit_exceeded "
    "enforced_spend_limit_reached billing_hard_limit_reached billing_not_active billing_error "
    "budget_exceeded exceeded_current_quota_error arrearage"
)
_MONEY_WORDS = (
    "spend limit|spending limit|spending cap|credit balance is too low|insufficient balance"
    "|credits are depleted|budget has been exceeded|exceededbudget|exceeded budget"
    "|reached your specified api usage limits|reached your specified workspace api usage limits"
)
_CAPACITY_CODES = (
    "resource_unavailable capacity_exceeded service_tier_capacity_exceeded nocapacity "
    "engine_overloaded engine_overloaded_error overloaded_error"
)
_CAPACITY_WORDS = (
    "overloaded|high demand|resource unavailable|no deployments available|server busy"
    "|no capacity|queue is full|loading model|currently loading"
)
_TOO_LONG_CODES = (
    "context_length_exceeded exceed_context_size_error request_too_large context_window_exceeded "
    "string_above_max_length"
)
_TOO_LONG_WORDS = (
    "maximum context length|model's context length|context length exceeded|context window"
    "|contextwindowexceeded|exceed context size|exceed context limit"
    "|exceeds the available context|prompt is too long|input is too long|input token count"
    "|reduce the length|must have less than|`max_new_tokens` must be"
)
_FILTERED_CODES = (
    "content_filter responsibleaipolicyviolation content_policy_violation "
    "data_inspection_failed content_filtered moderation_blocked"
)
_FILTERED_WORDS = (
    "content management policy|content filtering policy|contentpolicyviolation|"
    "input was flagged|flagged as potentially violating"
)
_RATE_CODES = "rate_limit_error rate_limit_exceeded resource_exhausted"
_AUTH_CODES = (
    "invalid_api_key authentication_error permission_error model_not_found invalid_model "
    "model_not_available model_decommissioned model_terms_required "
    "dedicated_endpoint_not_running organization_restricted"
)
_AUTH_WORDS = (
    "api key not valid|api key expired|incorrect api key|invalid authorization header"
    "|multiple authentication credentials|organization has been disabled"
    "|location is not supported|free tier is not available in your country"
    "|invalid model name|invalid model id|not a valid model id|model identifier is invalid"
    "|model not exist|no models loaded|plain http request was sent"
    "|http request to an https server|required ssl certificate|the ssl certificate error"
)
# The provider has checked the model's answer against the request; another try may do better.
_BAD_OUTPUT_CODES = "json_validate_failed tool_use_failed"
_BAD_OUTPUT_WORDS = "failed to generate json|failed to validate json|failed to call a function"
# llama.cpp cannot parse the answer of the model.
_UNREADABLE_WORDS = "model produced output that does not match"

# The provider's own check of the request, which some servers report as a server error.
_BAD_REQUEST_WORDS = "1 validation error:|validation errors:"

_UNLOADED_WORDS = "model has crashed|model unloaded|model is unloaded"

# The first matching row decides. A row's codes fit any error status, because gateways change
# statuses. For every error status there is a row without codes and words.
# fmt: off
TABLE = (
    #    statuses           class                   codes       words of its text
    _row("402", ErrorClass.CAPACITY, "in_flight_budget_exhausted"),
    _row("400 403 412 429", ErrorClass.MONEY, _MONEY_CODES, _MONEY_WORDS),
    _row("429 503", ErrorClass.RAMP, "slow_down"),
    _row("429 503", ErrorClass.CAPACITY, _CAPACITY_CODES, _CAPACITY_WORDS),
    # The request needs more tokens than any minute has.
    _row("429", ErrorClass.TOO_LONG, _TOO_LONG_CODES, "request too large"),
    # Before the rates: Groq names a rate for a request that no minute has room for.
    _row("413", ErrorClass.TOO_LONG),
    _row("429", ErrorClass.RATE, _RATE_CODES),
    _row("400 403 422", ErrorClass.FILTERED, _FILTERED_CODES),
    _row("400 422", ErrorClass.AUTH, _AUTH_CODES),
    _row("400", ErrorClass.BAD_OUTPUT, _BAD_OUTPUT_CODES),
    _row("402", ErrorClass.MONEY),
    _row("429", ErrorClass.RATE),
    _row("498 529", ErrorClass.CAPACITY),
    _row("400 422 500", ErrorClass.TOO_LONG, words=_TOO_LONG_WORDS),
    _row("400 403 422", ErrorClass.FILTERED, words=_FILTERED_WORDS),
    _row("400 422", ErrorClass.AUTH, words=_AUTH_WORDS),
    _row("400", ErrorClass.BAD_OUTPUT, words=_BAD_OUTPUT_WORDS),
    _row("500", ErrorClass.BAD_OUTPUT, words=_UNREADABLE_WORDS),
    _row("500", ErrorClass.BAD_REQUEST, words=_BAD_REQUEST_WORDS),
    _row("400", ErrorClass.SERVER, words=_UNLOADED_WORDS),
    _row("401 403 404 405", ErrorClass.AUTH),
    # A proxy wants a password, or the address is not the API's: redirects are not followed.
    _row("407 3xx", ErrorClass.AUTH),
    # A retired model or endpoint, or a server that takes no such connections: no task's fault.
    _row("410 411 421 426", ErrorClass.AUTH),
    _row("408 409 424 425", ErrorClass.SERVER),
    _row("499", ErrorClass.SERVER),  # a proxy believed that we had hung up
    _row("5xx", ErrorClass.SERVER),
    _row("4xx", ErrorClass.BAD_REQUEST),
)
# fmt: on
_NO_STATUS = ErrorClass.SERVER  # for a status that no row has
_NOT_NAMED = ErrorClass.BAD_REQUEST  # for a body that names no cause


def classify(status: int, body: bytes, *, cut: bool = False) -> Failure:
    """Return the failure of an unsuccessful reply; its text shows status, code and message.

    A request is bad if the body names no other cause, such as money or the key. If the body was
    `cut`, the missing part may name another cause, so the reply is AMBIGUOUS.
    """
    failure = of_value(status, _parsed(body), body)
    if cut and failure.error_class == _NOT_NAMED:
        text = one_line(f"{failure.text} (its body was cut)")
        return replace(failure, error_class=ErrorClass.AMBIGUOUS, text=text)
    return failure


def of_value(status: int, value: Any, body: bytes = b"") -> Failure:
    """Return the failure of an error body that is already parsed.

    `body` is shown if the value has no message.
    """
    repeated = _repeated(value)
    parts = chain(_parts(value), _parts(_parsed(repeated)))
    codes = [code for part in parts for code in _codes(part)]
    message = _message(value) or body[:1000].decode("utf-8", "replace")
    if repeated:
        message = f"{message}: {_message(_parsed(repeated)) or repeated}"
    # Only the shown part of the message is classified, without quoted text. Quoted text and the
    # rest may repeat the document, and a document must not influence the class of its failure.
    text = _unquoted(message[:TEXT_CHARS]).lower()
    lowered = frozenset(code.lower() for code in codes)
    classes = (row.error_class for row in TABLE if row.fits(status, lowered, text))
    name = next((code for code in codes if not code.isdigit()), "")
    shown = f"{status} {name}: {message}" if name else f"{status}: {message}"
    named = provider_error_of(next(filter(_text, _parts(value)), None))
    return Failure(next(classes, _NO_STATUS), one_line(shown), provider_error=named)


def hidden_status(value: Any) -> int:
    """Return the HTTP status of an error inside a success.

    That is the status that the error names as its code, or else a status of the first row with one
    of its other codes, or else 500.
    """
    codes = [code.lower() for part in _parts(value) for code in _codes(part)]
    in_codes = (int(code) for code in codes if _STATUS.fullmatch(code))
    in_table = (min(row.statuses) for row in TABLE if not row.codes.isdisjoint(codes))
    return next(chain(in_codes, in_table), 500)


def _unquoted(text: str) -> str:
    """Return the text without its quoted parts.

    Quoted names, of one word, stay. So does the message of an error that is quoted as JSON.
    """
    return _QUOTED.sub(_kept_part, text)


def _kept_part(match: re.Match[str]) -> str:
    if match["mark"]:
        return _unquoted(match["said"])
    return "" if len(match["said"].split()) > 1 else match[0]


def _message(value: Any) -> str:
    return next(filter(None, map(_text, _parts(value))), "")


def _repeated(value: Any) -> str:
    """Return the error of the provider behind OpenRouter, which OpenRouter repeats as `raw`.

    OpenRouter's own message says only that there was an error.
    """
    raws = (part.get("raw") for part in _parts(value))
    return next((raw for raw in raws if isinstance(raw, str) and raw.strip()), "")


def _parsed(body: bytes | str) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _parts(value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the objects that may hold a code, outermost first.

    Some providers wrap them in a list.
    """
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, dict) and depth < _DEPTH:
        yield value
        for name in _NESTED:
            yield from _parts(value.get(name), depth + 1)


def _codes(part: dict[str, Any]) -> list[str]:
    return [str(part[name]) for name in _CODES if isinstance(part.get(name), (str, int))]


def _text(part: dict[str, Any]) -> str:
    texts = (part.get(name) for name in _TEXTS)
    return next((text for text in texts if isinstance(text, str) and text), "")

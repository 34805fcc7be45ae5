"""Classifies replies without a usable completion: by status, codes and wording together."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from docllm.schemas.refusals import kinds
from docllm.schemas.refusals.error_body import ErrorBody, is_page, read_body, read_value
from docllm.schemas.refusals.kinds import Rule
from docllm.schemas.refusals.words import (
    IS_OF_REQUEST,
    decides,
    words_of_code,
    words_of_place,
    words_of_text,
)
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.provider_error import ProviderError
from docllm.schemas.task.result.fitness import NO_OBJECT
from docllm.schemas.text.wording import TEXT_CHARS, one_line

_NO_CHOICES = (
    "the reply has no choices with a message; does llm.base_url name an OpenAI-compatible API?"
)
_SUCCESS = 200
_ERRORS = frozenset({_SUCCESS, *range(400, 600)})
_STATUS = re.compile("[45][0-9]{2}")
# Statuses that may be about a field of the request.
_OF_REQUEST = frozenset({200, 400, 422})
# A status that servers and gateways send for anything, and those that an error's code may mean.
_ANY_STATUS = frozenset({400, 500, 502})
_EXACT = frozenset({401, 402, 403, 404, 408, 413, 429, 498, 503, 504, 529})


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a refusal says: its class, a text for a person, and what the provider names."""

    error_class: ErrorClass
    text: str
    provider_error: ProviderError = field(default=ProviderError(), compare=False)


@dataclass(frozen=True, slots=True)
class Signal:
    """A row of the table.

    Its codes decide under any error status, its wording only under the row's own statuses. A row
    without codes and wording fits every reply with one of its statuses.
    """

    statuses: frozenset[int]
    error_class: ErrorClass
    codes: frozenset[str] = frozenset()
    wording: tuple[Rule, ...] = ()

    def fits(self, status: int, codes: frozenset[str], text: str) -> bool:
        """Return whether the reply has this signal.

        `codes` are in lower case; `text` has the words of `words_of`.
        """
        if status in _ERRORS and not self.codes.isdisjoint(codes):
            return True
        if status not in self.statuses:
            return False
        return (not self.codes and not self.wording) or any(
            rule.fits(text) for rule in self.wording
        )


def _row(
    statuses: str,
    error_class: ErrorClass,
    codes: str = "",
    wording: tuple[Rule, ...] = (),
    *,
    but: str = "",
) -> Signal:
    """Return a row. `4xx` means a hundred statuses; those of `but` are left out."""
    return Signal(
        _statuses(statuses) - _statuses(but),
        error_class,
        frozenset(codes.lower().split()),
        wording,
    )


def _statuses(names: str) -> frozenset[int]:
    numbers: set[int] = set()
    for name in names.split():
        if name.endswith("xx"):
            numbers.update(range(int(name[0]) * 100, int(name[0]) * 100 + 100))
        else:
            numbers.add(int(name))
    return frozenset(numbers)


def _phrases(words: str) -> tuple[Rule, ...]:
    return (Rule((tuple(words.split("|")),)),)


_MONEY_CODES = (
    "insufficient_quota credit_balance_exhausted organization_spend_limit_exceeded "
    "project_spend_limit_exceeded insufficient_balance organization_usage_limit_exceeded "
    "enforced_spend_limit_reached billing_hard_limit_reached billing_not_active billing_error "
    "budget_exceeded exceeded_current_quota_error arrearage"
)
_CAPACITY_CODES = (
    "resource_unavailable capacity_exceeded service_tier_capacity_exceeded nocapacity "
    "engine_overloaded engine_overloaded_error overloaded_error"
)
_TOO_LONG_CODES = (
    "context_length_exceeded exceed_context_size_error request_too_large context_window_exceeded"
)
_FILTERED_CODES = (
    "content_filter responsibleaipolicyviolation content_policy_violation "
    "data_inspection_failed content_filtered moderation_blocked"
)
_RATE_TYPES = "limit_requests limit_burst_rate"  # beside the code `insufficient_quota`
_RATE_CODES = "rate_limit_error rate_limit_exceeded resource_exhausted"
_AUTH_CODES = (
    "invalid_api_key authentication_error permission_error model_not_found invalid_model "
    "model_not_available model_decommissioned model_terms_required "
    "dedicated_endpoint_not_running organization_restricted access_terminated"
)
# The provider has checked the model's answer against the request; another try may do better.
_BAD_OUTPUT_CODES = "json_validate_failed tool_use_failed"
_BAD_OUTPUT_WORDS = _phrases(
    "failed to generate json|failed to validate json|failed to call a function"
)
# llama.cpp cannot parse the answer of the model.
_UNREADABLE_WORDS = _phrases("model produced output that does not match")

# The provider's own check of the request, which some servers report as a server error.
_BAD_REQUEST_WORDS = _phrases(" 1 validation error | validation errors ")

_UNLOADED_WORDS = _phrases(
    "model has crashed|model unloaded|model is unloaded|failed to load model|error loading model"
    "|insufficient system resources"
)
_ANY = "200 4xx 5xx"
# Statuses that name the cause: the wording is not asked.
_NAMES_CAUSE = "401 402 407 408 429"

# The first matching row decides. A row's codes fit any error status, because gateways change
# statuses. For every status of an error there is a row without codes and wording. What parks a
# route, money and the key, is not read from words under a status that says something else.
# fmt: off
TABLE = (
    #    statuses           class                   codes       wording
    _row("429", ErrorClass.RATE, _RATE_TYPES),
    _row("498", ErrorClass.AUTH, wording=kinds.AUTH),
    _row("402", ErrorClass.CAPACITY, "in_flight_budget_exhausted"),
    _row("400 422", ErrorClass.BAD_REQUEST, wording=kinds.OF_FIELD),
    _row("200 400 401 402 403 412 429", ErrorClass.MONEY, _MONEY_CODES, kinds.MONEY),
    _row("429 503", ErrorClass.RAMP, "slow_down"),
    _row("200 400 403 422 424 429 5xx", ErrorClass.CAPACITY, _CAPACITY_CODES,
         kinds.CAPACITY),
    # The request needs more tokens than any minute has.
    _row("429", ErrorClass.TOO_LONG, _TOO_LONG_CODES, kinds.TOO_LARGE),
    # Before the rates: Groq names a rate for a request that no minute has room for.
    _row("413", ErrorClass.TOO_LONG),
    _row("429", ErrorClass.RATE, _RATE_CODES),
    _row("400 403 422", ErrorClass.FILTERED, _FILTERED_CODES),
    _row("400 422", ErrorClass.AUTH, _AUTH_CODES),
    _row("400", ErrorClass.BAD_OUTPUT, _BAD_OUTPUT_CODES),
    _row("402", ErrorClass.MONEY),
    _row("429", ErrorClass.TOO_LONG, wording=kinds.TOO_LONG_FOR_MODEL),
    _row("420 429", ErrorClass.RATE),
    _row("451", ErrorClass.FILTERED),
    _row("498 529", ErrorClass.CAPACITY),
    _row("200 400", ErrorClass.BAD_OUTPUT, wording=_BAD_OUTPUT_WORDS),
    _row("200 500", ErrorClass.BAD_OUTPUT, wording=_UNREADABLE_WORDS),
    _row("500", ErrorClass.BAD_REQUEST, wording=_BAD_REQUEST_WORDS),
    _row("200 400", ErrorClass.SERVER, wording=_UNLOADED_WORDS),
    _row("5xx", ErrorClass.SERVER, wording=kinds.OUTAGE),
    _row(_ANY, ErrorClass.FILTERED, wording=kinds.FILTERED, but=_NAMES_CAUSE),
    _row(_ANY, ErrorClass.TOO_LONG, wording=kinds.TOO_LONG, but=_NAMES_CAUSE),
    _row("200 400 422", ErrorClass.AUTH, wording=kinds.AUTH),
    _row(_ANY, ErrorClass.RATE, wording=kinds.RATE, but=_NAMES_CAUSE),
    _row("200", ErrorClass.SERVER),
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


def classify(status: int, body: bytes, *, cut: bool = False) -> Refusal:
    """Return the refusal of an unsuccessful reply; its text shows status, code and message.

    A request is bad if the body names no other cause, such as money or the key. If the body was
    `cut`, the missing part may name another cause, so the reply is AMBIGUOUS.
    """
    refusal = _refusal(status, read_body(body))
    if cut and refusal.error_class == _NOT_NAMED:
        text = one_line(f"{refusal.text} (its body was cut)")
        return replace(refusal, error_class=ErrorClass.AMBIGUOUS, text=text)
    return refusal


def of_success(value: Any) -> Refusal:
    """Return the refusal of a reply whose status is a success, though it has no completion.

    `value` is the parsed body, or its bytes. A status that an error names as its code is taken for
    the reply's own.
    """
    is_raw = isinstance(value, bytes)
    body = read_body(value) if is_raw else read_value(value)
    status = next((int(code) for code in body.codes if _STATUS.fullmatch(code)), _SUCCESS)
    refusal = _refusal(status, body)
    if body.texts and not (refusal.error_class == ErrorClass.SERVER and is_page(value)):
        return refusal
    excerpt = "" if is_raw or not value else _excerpt(value)
    if not excerpt:
        doubt = _NO_CHOICES if value == {} else NO_OBJECT.text
        if body.texts:
            doubt = one_line(f"{doubt} It says: {': '.join(_shown(body.texts))}")
        return replace(refusal, text=doubt)
    text = refusal.text if body.codes else "the reply has no choices with a message"
    return replace(refusal, text=one_line(f"{text.removesuffix(':')}: {excerpt}"))


def _excerpt(value: Any) -> str:
    try:
        return orjson.dumps(value)[:TEXT_CHARS].decode("utf-8", "replace")
    except orjson.JSONEncodeError:
        return ""


def _refusal(status: int, body: ErrorBody) -> Refusal:
    # Only the shown part of each text is classified, without quoted text. Quoted text and the rest
    # may repeat the document, and a document must not influence the class of its refusal.
    texts = _shown(body.texts)
    error_class = _class_of(_exact(status, body.codes), body, texts)
    name = next((code for code in body.codes if not code.isdigit()), "")
    message = ": ".join(texts)
    shown = f"{status} {name}: {message}" if name else f"{status}: {message}"
    return Refusal(error_class, one_line(shown), body.named)


def _class_of(status: int, body: ErrorBody, texts: Sequence[str]) -> ErrorClass:
    codes = frozenset(code.lower() for code in body.codes)
    words = [*map(words_of_code, body.codes), *map(words_of_place, body.places)]
    words += map(words_of_text, texts)
    text = " | ".join(words)
    if status not in _OF_REQUEST:
        text = text.replace(IS_OF_REQUEST, " ")
    elif body.places and not any(map(decides, body.places)):
        text = ""
    return next((row.error_class for row in TABLE if row.fits(status, codes, text)), _NO_STATUS)


def _shown(texts: Sequence[str]) -> list[str]:
    """Return the texts, each once, as far as they are shown together."""
    shown: list[str] = []
    left = TEXT_CHARS
    for text in texts:
        if left > 0 and not any(text in other for other in shown):
            shown.append(text[:left])
            left -= len(text)
    return shown


def _exact(status: int, codes: Sequence[str]) -> int:
    """Return the status that an error's innermost code names, if the reply's says nothing."""
    if status not in _ANY_STATUS:
        return status
    named = (int(code) for code in reversed(codes) if _STATUS.fullmatch(code))
    return next((number for number in named if number in _EXACT), status)

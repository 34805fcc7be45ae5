"""Recognizes what an error is about by the kind of its wording: a few roots, in any order.

A kind is a rule of groups: one root of each group must stand in the text, close to the others. No
pattern is searched for, so the cost grows with the text alone, which is short.
"""

from dataclasses import dataclass
from itertools import product

from docllm.schemas.refusals import roots
from docllm.schemas.refusals.roots import Group, group
from docllm.schemas.refusals.words import IS_OF_REQUEST

SPAN = 110  # characters between the first and the last root of a rule
_NEAR, _NEARER = 70, 50
_MAX_PLACES = 8  # of one group
OF_REQUEST = (IS_OF_REQUEST,)


@dataclass(frozen=True, slots=True)
class Rule:
    """Fits if a root of each group is near the others and no root of `unless` is anywhere."""

    groups: tuple[Group, ...]
    unless: Group = ()
    span: int = SPAN

    def fits(self, text: str) -> bool:
        """Return whether the words of a text, by `words_of`, have this rule's roots."""
        if any(root in text for root in self.unless):
            return False
        places = [_places(text, roots_of_group) for roots_of_group in self.groups]
        if not all(places):
            return False
        return any(max(place) - min(place) <= self.span for place in product(*places))


def _places(text: str, roots_of_group: Group) -> list[int]:
    places: list[int] = []
    for root in roots_of_group:
        at = text.find(root)
        while at >= 0 and len(places) < _MAX_PLACES:
            places.append(at)
            at = text.find(root, at + 1)
    return places


# What a server says of its own failure may name the prompt or a filter that it could not reach.
OUTAGE = (
    Rule(
        (
            group(
                "_timeout|_timed out|_deadline|_connection refused|_connection reset|_unreachable"
                "|_is unavailable|failed to connect|failed to reach|failed to read|failed to write"
                "|_stack overflow|_recursion|_broken pipe"
            ),
        ),
        group("_rate limit_|_too many requests"),
    ),
)
# What is wrong with a field of the request may name money, keys, limits and filters.
OF_FIELD = (
    Rule(
        (
            group(
                "_unknown_|_unrecognized|_unsupported|_not supported|_not recognized"
                "|_not permitted|_cannot find|_extra_"
            ),
            group("_field_|_parameter_|_argument_|_property_|_inputs_|_name_"),
        ),
        group("_token|_length|_model_"),
        _NEARER,
    ),
    Rule(
        (
            group("_schema_|_schemas_"),
            group(
                "_invalid|_property|_properties|_missing|_must|_enum_|_not permitted|_not allowed"
                "|_not supported|_exceeds|too many"
            ),
        ),
        group("_token|_generated_|_failed to"),
    ),
    Rule(
        (
            group("_download|_fetch|_image url|_image~url"),
            group("_fail|_unable|_error|_returned|_could not|_cannot|_timeout"),
            group("_image|_file_|_url_|_https_|_http_|_media|_audio|_video|_document"),
        ),
    ),
)

TOO_LARGE = (
    Rule(
        (
            group(
                "_request too large|_entity too large|_payload too large|_too large for"
                "|_body exceed"
            ),
        )
    ),
)
# Under 429, where a limit of tokens is one of a minute unless it is the model's.
TOO_LONG_FOR_MODEL = (
    Rule((group("_context |_prompt"), roots.OVER, roots.SIZE), roots.OF_RATE + group("_monthly")),
)
TOO_LONG = (
    *TOO_LARGE,
    Rule((roots.INPUT, roots.OVER, roots.SIZE), roots.OF_OTHER_SIZE + roots.OUTPUT),
    # With the parameter of the output beside it, the input must be named as well.
    Rule(
        (
            group("_prompt|_input|_context_|_context~length|_messages_"),
            roots.OVER,
            roots.SIZE,
        ),
        roots.OF_OTHER_SIZE + group("_number of output tokens"),
    ),
    Rule(
        (roots.STRONG_INPUT, roots.STRONG_OVER),
        roots.OF_OTHER_SIZE + roots.OUTPUT,
        _NEARER,
    ),
    Rule((roots.TOKENS, roots.MANY_TOKENS), roots.OF_OTHER_SIZE + roots.OUTPUT),
    Rule(
        (
            group("_text_|_texte_|_texto_|_testo_"),
            group("_too much_|_trop de_|_demasiado_|_zu viel_"),
        )
    ),
    Rule(
        (roots.TOKENS, group("_only_"), roots.DIGITS), roots.OF_OTHER_SIZE + roots.OUTPUT, _NEARER
    ),
    # What is too much, if it is no field that is named.
    Rule(
        (roots.STRONG_OVER + roots.EXCESS, roots.MEASURE),
        roots.OF_OTHER_SIZE + roots.OUTPUT + OF_REQUEST,
        _NEARER,
    ),
    Rule(
        (roots.STRONG_OVER, roots.MODEL), roots.OF_OTHER_SIZE + roots.OUTPUT + OF_REQUEST, _NEARER
    ),
    # A model's window and a number beside it, however they are compared.
    Rule((roots.WINDOW_NAME, roots.DIGITS), roots.OF_OTHER_SIZE + roots.OUTPUT, _NEAR),
    Rule((roots.WINDOW_NAME, roots.TOO_SMALL), roots.OF_OTHER_SIZE, _NEARER),
    Rule((roots.SHORTER, roots.SHORTENED), roots.OF_OTHER_SIZE + roots.OUTPUT + OF_REQUEST, 40),
    Rule((roots.PAST, roots.WINDOW), roots.OF_OTHER_SIZE, _NEARER),
    Rule((roots.OUTPUT, group("at least"), tuple(f" -{digit}" for digit in range(1, 10)))),
    Rule((group("_shorten_|_shortening_"),), roots.OF_PARAMETER),
)
FILTERED = (
    Rule((roots.SAFETY_WORDS,), group("_polic~ not found|_moderation model|_moderation service")),
    Rule(
        (roots.CONTENT, roots.REFUSED_CONTENT),
        group(
            "_content type|_content length|_requests blocked|_key_|_account_|_json_|_schema_"
            "|参数|參數|格式|_field"
        ),
        60,
    ),
    Rule((roots.VIOLATES, roots.POLICY), group("_data polic|_quota")),
    Rule(
        (roots.GUARD, roots.GUARDED),
        group(
            "_not found|_data policy|_quota|_network|_firewall|_ip address|_service unavailable"
            "|_unknown_|_invalid_|_template"
        ),
        _NEAR,
    ),
    Rule((roots.SENSITIVE, roots.FOUND), (), _NEARER),
    Rule((roots.TOPICS, roots.REFUSED), OF_REQUEST, _NEARER),
)
RATE = (
    Rule((roots.RATE_WORDS,), group("_rate limiter")),
    Rule((group("_quota|_tokens|_token limit|_limit"), group("_try again in|_wait before|_retry"))),
    Rule(
        (
            group("_requests_|_concurrent|_parallel_|_simultaneous"),
            group("too many|_limit|_reached|too often|_allowed|_at most|_maximum"),
        )
    ),
    Rule((group("_hourly|_daily|_weekly"), group("_limit|_reached|exceed"))),
    Rule((group("_quota"), group("exceed|exhaust|_reach|_out of|_used up"))),
)
CAPACITY = (
    Rule((roots.BUSY_WORDS,)),
    Rule(
        (roots.SERVING, roots.BUSY),
        group(
            "_failed to|_error loading|_cannot load|_crash|_out of memory|_system memory|_does not"
            "|_prompt"
        ),
        _NEARER,
    ),
    Rule((roots.QUEUE, roots.QUEUED), (), _NEARER),
    Rule((roots.HARDWARE, roots.USED), group("_out of memory"), _NEARER),
    Rule((roots.NONE_OF, roots.HARDWARE), group("_out of memory|_enough memory|_associat"), 25),
    Rule(
        (roots.NONE_OF, roots.SERVING, roots.FREE),
        group("_no server is available|_no healthy upstream|_memory|_no models loaded"),
        _NEARER,
    ),
)
MONEY = (
    Rule((roots.FUNDS, roots.LACKING), roots.NO_CHARGE + OF_REQUEST, _NEAR),
    Rule((roots.NO_MONEY_WORDS,), group("_no payment required")),
    Rule((roots.PLAN, roots.PLAN_PARTS, roots.PLAN_USED), group("_per min|_rate limit")),
    Rule((roots.TRIAL, roots.ENDED), group("_per min|_rate limit|_per day"), _NEARER),
    Rule((roots.PLANS, roots.NEEDED), roots.NO_CHARGE + group("_per min|_rate limit|_key_"), 40),
    Rule((roots.BUY, roots.BOUGHT), roots.NO_CHARGE + group("_per min|_throughput"), _NEARER),
)
AUTH = (
    Rule((roots.KEY, roots.BAD_KEY), group("_certificate pinning"), _NEARER),
    Rule((roots.THIS_KEY, roots.ENDED_KEY), (), _NEARER),
    Rule((roots.ACCOUNT, roots.CLOSED_ACCOUNT), (), _NEARER),
    Rule((roots.MODEL, roots.NO_MODEL), group("_file_|_image|_tool_|_function_"), 60),
    Rule((roots.OPEN_ACCOUNT, roots.VERIFIED), OF_REQUEST, 30),
    Rule((roots.NO_ACCESS_WORDS,), group("_json_")),
)

"""Recognizes what an error is about by the kind of its wording: a few roots, in any order.

A kind is a rule of groups: one root of each group must stand in the text, close to the others. No
pattern is searched for, so the cost grows with the text alone, which is short.
"""

import re
from dataclasses import dataclass
from itertools import product

SPAN = 110  # characters between the first and the last root of a rule
_MAX_PLACES = 8  # of one group
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[<>]=?|-?[0-9][0-9.,]*+|[^\W\d]++")
Group = tuple[str, ...]


def _group(roots: str) -> Group:
    """Return roots that are separated by bars; `_` begins or ends a word."""
    return tuple(root.strip().replace("_", " ") for root in roots.split("|"))


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
        places = [_places(text, group) for group in self.groups]
        if not all(places):
            return False
        return any(max(place) - min(place) <= self.span for place in product(*places))


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


def _places(text: str, group: Group) -> list[int]:
    places: list[int] = []
    for root in group:
        at = text.find(root)
        while at >= 0 and len(places) < _MAX_PLACES:
            places.append(at)
            at = text.find(root, at + 1)
    return places


# Phrases in which a root means something else.
_SAYS_NOTHING = _group(
    "_input should be_|_input validation error_|_input argument_|_no credits were charged_"
    "|_no credit was charged_|_check your plan and billing details_|_case sensitive_"
    "|_credits have been refunded_"
)

_INPUT = _group(
    "_prompt|_input|_context|_messages_|_message_|_sequence|_n~ctx|_max~model~len|_max~seq~len"
    "|_payload|_request body|_text_|_history|_conversation|_document"
    "|输入|上下文|提示词|字数|文本|对话"
    "|_eingabe|_kontext|_contexte|_entrée|_requête|_entrada|_contexto|_texto|_texte"
    "|入力|プロンプト|コンテキスト|입력|프롬프트|컨텍스트|контекст|запрос|вход|промпт"
)
_OVER = _group(
    "too long|too large|too big|longer than|larger than|greater than|more than|exceed|overflow"
    "|less than|fewer than|at most|maximum|_max_|limit|shorter|_reduce|truncat|not fit|too many"
    "|_>_|_<=_|_range of|_above_|_only supports|_over_|_full_|not enough|ran out of|run out of"
    "|_max~length|_max~input|_shorten|_beyond_|超|过长|上限|最大|限制|太长|太多"
    "|zu lang|überschreit|trop long|dépass|maximal|demasiado|supera|excede|muito long|troppo lung"
    "|長すぎ|最大|上限|초과|너무 길|최대|превыш|слишком|максимал|больш"
)
_SIZE = _group(
    "_token|_length|_long|_size|_window|_large|_character|_context|_bytes|_mb_|_kb_|overflow|长"
    "|字数|token"
    "|länge|_lang_|longue|jetons|longitud|largo|longo|トークン|長|토큰|길|токен|длин|размер"
)
_OF_RATE = _group(
    "_rate_|_запросов|_par minute|_pro minute|_por minuto|_al minuto|_per min|_per day|_per second"
    "|_per hour|_rpm_|_tpm_|_rpd_|_tpd_|_qps_"
    "|_quota|throttl"
    "|_concurren|_frequen|_wait_|_try again in|_retry after|_daily|_monthly|频|并发|流控|限流"
)
_OF_PARAMETER = _group(
    "_array_|_stop_|_temperature|_top~p|_top~k|logprobs|logit~bias|_prompt~cache|_penalty|_seed_"
    "|_valid range of"
    "|_maximum value|_embedding|_batch size must|_header"
)
_OUTPUT = _group(
    "_max~tokens|_max~completion~tokens|_max~output~tokens|_max~new~tokens|_completion tokens"
    "|_output tokens|_output limit"
)
_BELOW_ZERO = tuple(f" -{digit}" for digit in range(1, 10))

_STRONG_INPUT = _group(
    "_prompt|_context|_input|输入|上下文|内容|文本|_eingabe|_kontext|_contexte|_entrée|_texte"
    "|_entrada"
    "|_contexto|_texto|入力|プロンプト|コンテキスト|입력|프롬프트|컨텍스트|контекст|промпт|запрос"
)
_STRONG_OVER = _group(
    "too long|too large|too big|exceed|overflow|longer than|_shorten|超过|超出|超长|过长|超限"
    "|太长"
    "|zu lang|zu groß|überschreit|trop long|trop grand|dépass|demasiado|supera|excede|muito long"
    "|troppo lung|長すぎ|超え|초과|너무 길|너무 깁|너무 긴|превыш|слишком"
)

# What a server says of its own failure may name the prompt or a filter that it could not reach.
OUTAGE = (
    Rule(
        (
            _group(
                "_timeout|_timed out|_deadline|_connection refused|_connection reset|_unreachable"
                "|_is unavailable|failed to connect|failed to reach|failed to read|failed to write"
                "|_stack overflow|_recursion|_broken pipe"
            ),
        ),
        _group("_rate limit_|_too many requests"),
    ),
)
# What is wrong with a field of the request may name money, keys, limits and filters.
OF_FIELD = (
    Rule(
        (
            _group(
                "_unknown_|_unrecognized|_unsupported|_not supported|_not recognized"
                "|_not permitted|_cannot find|_extra_"
            ),
            _group("_field_|_parameter_|_argument_|_property_|_inputs_|_name_"),
        ),
        _group("_token|_length|_model_"),
        50,
    ),
    Rule(
        (
            _group("_schema_|_schemas_"),
            _group(
                "_invalid|_property|_properties|_missing|_must|_enum_|_not permitted|_not allowed"
                "|_not supported|_exceeds|too many"
            ),
        ),
        _group("_token|_generated_|_failed to"),
    ),
    Rule(
        (
            _group("_download|_fetch|_image url|_image~url"),
            _group("_fail|_unable|_error|_returned|_could not|_cannot|_timeout"),
            _group("_image|_file_|_url_|_https_|_http_|_media|_audio|_video|_document"),
        ),
    ),
)

TOO_LARGE = (
    Rule(
        (
            _group(
                "_request too large|_entity too large|_payload too large|_too large for"
                "|_body exceed"
            ),
        )
    ),
)
# Under 429, where a limit of tokens is one of a minute unless it is the model's.
TOO_LONG_FOR_MODEL = (Rule((_group("_context |_prompt"), _OVER, _SIZE), _OF_RATE),)
TOO_LONG = (
    *TOO_LARGE,
    Rule((_INPUT, _OVER, _SIZE), _OF_RATE + _OF_PARAMETER + _OUTPUT),
    # With the parameter of the output beside it, the input must be named as well.
    Rule(
        (_group("_prompt|_input|_context_|_context~length|_messages_"), _OVER, _SIZE),
        _OF_RATE + _OF_PARAMETER + _group("_number of output tokens"),
    ),
    Rule((_STRONG_INPUT, _STRONG_OVER), _OF_RATE + _OF_PARAMETER + _OUTPUT, 50),
    Rule(
        (
            _group("_token|_jeton|토큰|токен|トークン"),
            _group(
                "too many|more than|larger than|greater than|_over the|limit reached|exceed|_above_"
                "|_up to_|_accepts_|zu viel|überschreit|trop de|dépass|demasiad|supera|excede"
                "|muitos"
                "|troppi|超过|超出|超|초과|превыш|слишком"
            ),
        ),
        _OF_RATE + _OF_PARAMETER + _OUTPUT,
    ),
    Rule((_OUTPUT, _group("at least"), _BELOW_ZERO)),
    Rule((_group("_shorten_|_shortening_"),), _OF_PARAMETER),
)
_CONTENT = _group(
    "_content|_prompt|_input|_output|_text_|_words|_word_|_completion|_generation|_message|_image"
    "|_response|_information|内容|输入|输出|文本|_inhalt|_eingabe|_contenu|_contenido|_conteúdo"
    "|コンテンツ|入力|콘텐츠|입력|контент|содерж|запрос"
)
FILTERED = (
    Rule(
        (
            _group(
                "_content filter|_content~filter|_content audit|_pii detect|_content polic"
                "|_content moderation|_moderation|_jailbreak"
                "|_safety system|_responsible ai|_prohibited content|_safety check|_inappropriate"
                "|_unsafe content|_content management|_usage guidelines|_censorship|_high risk"
                "|_content exists risk|_risk detect|_illegal detect|_harmful|_prompt guard"
                "|_nsfw|_hate speech|_safety guard|_safety block|_content safety"
                "|违禁|内容审核|敏感|违规|涉敏|不合规|审核不|内容安全|不当内容|不安全|不適切"
                "|부적절|유해"
                "|unangemessen|inappropri|inapropiad|inadequad|неприемлем|недопустим"
            ),
        ),
        _group("_polic~ not found|_moderation model"),
    ),
    Rule(
        (
            _CONTENT,
            _group(
                "_flagged|_unsafe|_sensitive|_prohibited|_blocked|_filtered|_offensive|_censor"
                "|_disallowed|_harm_|_objectionable|_toxic|_new~sensitive|bloqué|bloquead|bloccat"
                "|blockiert|gefiltert|запрещ|заблокир|ブロック|차단"
            ),
        ),
        _group("_content type|_content length|_requests blocked"),
        60,
    ),
    Rule(
        (
            _group(
                "_violat|_infring|_against|_breach|_verst|_enfreint|_viola|違反|위반|наруша|违反"
            ),
            _group(
                "_polic|_guideline|_practices|_terms of|_safety|_usage|_community|_rules"
                "|richtlinie"
                "|politique|política|règles|ポリシー|規約|정책|политик|правил|政策|规定|法律"
            ),
        ),
        _group("_data polic|_quota"),
    ),
    Rule(
        (
            _group("_guardrail|_safety filter|_safety setting|_policy_"),
            _group("_block|_flag|_violat|_interven|_refus|_reject|_fail|_trigger"),
        ),
        _group("_not found|_data policy|_quota"),
    ),
)
RATE = (
    Rule(
        (
            _group(
                "_rate limit|_ratelimit|_rate exceed|_rate quota|_too many requests|throttl"
                "|_too frequent|_rpm|_tpm|_qps|_slow down|_tokens per min|_requests per"
                "|_queries per"
                "|_calls per|_calls minute|_request limit|_resource exhausted|_resource has been"
                "|_concurrency|_too fast|_too quickly|频繁|频率|请求量|调用量|调用次数|限流|流控"
                "|并发"
                "|过于频繁|请求过多|限速|速率|访问限制"
                "|_zu viele anfragen|_ratenlimit|_trop de requêtes|_limite de débit"
                "|_limite de requ"
                "|_demasiadas solicitudes|_demasiadas peticiones|_muitas solicit"
                "|_troppe richieste|リクエストが多すぎ"
                "|レート制限|요청이 너무 많|요청 한도|속도 제한"
                "|слишком много запросов|лимит запросов|_anfragen pro|_requêtes par"
                "|_solicitudes por"
                "|_peticiones por|_requisições por|_richieste al|запросов в|분당 요청"
            ),
        ),
        _group("_rate limiter"),
    ),
    Rule(
        (_group("_quota|_tokens|_token limit|_limit"), _group("_try again in|_wait before|_retry"))
    ),
    Rule((_group("_requests_|_concurrent"), _group("too many|_limit|_reached|too often"))),
    Rule((_group("_hourly|_daily|_weekly"), _group("_limit|_reached|exceed"))),
    Rule((_group("_quota"), _group("exceed|exhaust|_reach|_out of"))),
)
CAPACITY = (
    Rule(
        (
            _group(
                "_overloaded|_over capacity|_high demand|_high traffic|_high load|_server busy"
                "|_too busy|_is busy|_no capacity|_capacity exceeded|_capacity temporarily"
                "|_queue is full|_queue full|_queue exceeded|_pending requests|_no available"
                "|_loading model|_currently loading|_is loading|_still loading|_heavy load"
                "|_resource unavailable|_resources exhausted|_no deployments available"
                "|_too many connections"
                "|_unable to handle additional|_insufficient capacity|_at capacity"
                "|无可用|负载|繁忙|访问量过大|过载|饱和|überlastet|surchargé|sobrecargad|混雑"
                "|混み合"
                "|過負荷"
                "|과부하|혼잡|перегруж"
            ),
        ),
    ),
)
MONEY = (
    Rule(
        (
            _group(
                "_balance|_credit|_funds_|_wallet|_prepay|_prepaid|_spend limit|_spending"
                "|_budget_"
                "|_payment|_billing|_invoice|余额|额度|余量|资源包|_guthaben|_kontostand|_solde_"
                "|_crédit|_saldo|_fondos|残高|잔액|크레딧|баланс|средств"
            ),
            _group(
                "insufficient|too low|deplet|exhaust|_enough_|_out of_|exceed|_limit|_cap_"
                "|_reached|overdue|expired|_required|_enter |_negative|_used all|_used up|_fail"
                "|_need|_add |_not enabled|_not active|_inactive|_disabled|_to be enabled"
                "|_no billing|_no remaining"
                "|_is empty"
                "|_purchase|_recharge|_top up|afford|_suspend|_more credits"
                "|不足|用尽|用完|欠费|reicht nicht|aufgebraucht|insuffisant|épuisé|insuficiente"
                "|agotad|부족|недостаточно|исчерпан"
            ),
        ),
        _group("_thinking|_rate limit|_load balanc"),
        70,
    ),
    Rule(
        (
            _group(
                "欠费|_payment required|_arrear|_exceeded budget|_over budget|_insufficient quota"
                "|_insufficient user quota|_api usage limits|_free allocation|_recharge"
                "|_account overdue|_overdue balance|_key limit exceeded|_no active subscription"
                "|残高不足"
            ),
        ),
    ),
    Rule(
        (
            _group("_monthly|_free tier|_free quota|_your plan_|_of the plan_|_subscription"),
            _group("_quota|_usage|_limit|_free tier|_free quota|_allocation|_expired"),
            _group("_reached|exceed|_exhaust|_used up|_expired"),
        ),
        _group("_per min|_rate limit"),
    ),
)
AUTH = (
    Rule(
        (
            _group(
                "api key|_apikey|_api token|_access token|_authentication|_authorization"
                "|_credential|_security token|_secret key|_login|_bearer|_clé d api|_clé api"
                "|api schlüssel|_clave de api|_clave api|_chave de api|api ключ|api 키|密钥"
            ),
            _group(
                "_invalid|_incorrect|_not valid|_expired|_missing|_revoked|_wrong"
                "|_no longer valid"
                "|_unauthor|_multiple|_fail|_carry|_not authorized|_no api|_not provided|无效"
                "|错误|过期|ungültig"
                "|invalide|inválid|неверн|недействит"
            ),
        ),
        _group("_certificate pinning"),
        50,
    ),
    Rule(
        (
            _group(
                "_model_|_model~id_|_deployment_|_model id|模型|_modell_|_modèle|_modelo|モデル"
                "|모델|модель"
            ),
            _group(
                "_not found|_not exist|_does not exist|_doesn t exist|_no such|_decommission"
                "|_retired|_not recognized|_not available for your|_nicht gefunden|_introuvable"
                "|_no se encuentra|_não encontrad|_non trovat|_not a valid|不存在|_existiert nicht"
                "|_n existe pas|_no existe|存在しません"
                "|не найден|찾을 수 없"
            ),
        ),
        _group("_file_|_image|_tool_|_function_"),
        60,
    ),
    Rule(
        (
            _group(
                "_organization has been disabled|_location is not supported|_invalid model"
                "|_free tier is not available in your country|_model identifier is invalid"
                "|_no models loaded|_unknown model|_unauthorized|_invalid token_|_token expired"
                "|鉴权失败|未授权|_plain http request was sent|_http request to an https server"
                "|_required ssl certificate|_the ssl certificate error|_login fail"
            ),
        ),
    ),
)

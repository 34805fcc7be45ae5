"""The roots of the words in which servers refuse, by what they mean, in a dozen languages.

A group is a text of roots between bars; `_` begins or ends a word. A root that means the same in
another language is added to its group.
"""

Group = tuple[str, ...]


def group(roots: str) -> Group:
    """Return roots that are separated by bars; `_` begins or ends a word."""
    return tuple(root.strip().replace("_", " ") for root in roots.split("|") if root.strip())


# ---- too long

INPUT = group(
    """_prompt|_input|_context|_messages_|_message_|_sequence|_n~ctx|_max~model~len|_max~seq~len
    |_payload|_request body|_text_|_history|_conversation|_document|_article_|_transcript|输入
    |輸入|上下文|提示词|提示詞|字数|字數|文本|对话|對話|文档|文檔|文章|内容|內容|消息|_eingabe
    |_kontext|_dokument|_nachricht|_contexte|_entrée|_requête|_texte|_invite_|_entrada
    |_contexto|_texto|_documento|_mensaje|_mensagem|_conteúdo|_testo|_contesto|_messaggio|入力
    |プロンプト|コンテキスト|ドキュメント|文書|文字数|テキスト|メッセージ|입력|프롬프트
    |컨텍스트|텍스트|문서|메시지|контекст|запрос|вход|промпт|текст|документ|сообщени|wejści
    |dokumen|girdi|_metin|_invoer|văn bản|văn_bản|_teks_|_масив|原稿|資料|본문|_corps du
    |_cuerpo|全文|正文|материал"""
)
OVER = group(
    """too long|too large|too big|longer than|larger than|greater than|bigger than|more than
    |exceed|overflow|less than|fewer than|at most|maximum|_max_|limit|shorter|_reduce|truncat
    |not fit|cannot fit|too many|too much|_>_|_<=_|_range of|_above_|_only supports|_over_
    |_full_|not enough|ran out of|run out of|_max~length|_max~input|_shorten|_beyond_|_past_
    |_allowed_|超|过长|過長|过大|過大|上限|最大|限制|太长|太長|太多|太大|zu lang|zu groß
    |zu viel|überschreit|überschritt|übersteig|trop long|trop grand|trop de|dépass|excèd|excéd
    |maximal|demasiado|supera|superó|exced|sobrepasa|ultrapassa|muito long|longo demais|troppo
    |ecced|máxim|massim|長すぎ|大きすぎ|多すぎ|초과|너무 길|너무 긴|너무 깁|너무 많|너무 큽
    |너무 큰|최대|превыш|слишком|максимал|больш|_t fit|za długi|zbyt dłu|przekracza|çok uzun
    |aş\u0131yor|te lang|te groot|quá dài|vượt quá|terlalu panjang|melebihi|overschrijdt|넘었
    |넘습|넘는|넘었습"""
)
SIZE = group(
    """_token|_length|_long|_size|_window|_large|_character|_context|_bytes|_mb_|_kb_|overflow
    |_words_|_pages_|长|長|字数|字數|token|länge|_lang_|zeichen|longue|jetons|taille|caractères
    |longitud|largo|longo|tamaño|tamanho|caracteres|lunghezza|caratteri|トークン|文字|토큰|길
    |글자|токен|длин|размер|символ|объем|объём|volumen|volume_|_umfang|長さ|분량|길이"""
)
STRONG_INPUT = group(
    """_prompt|_context|_input|_document_|_article_|_transcript|输入|輸入|上下文|内容|內容|文本
    |文档|文檔|文章|消息|_eingabe|_kontext|_dokument|_text_|_nachricht|_contexte|_entrée|_texte
    |_entrada|_contexto|_texto|_documento|_mensaje|_mensagem|_conteúdo|_testo|_contesto
    |_messaggio|入力|プロンプト|コンテキスト|ドキュメント|文書|文字数|テキスト|メッセージ|입력
    |프롬프트|컨텍스트|텍스트|문서|메시지|контекст|промпт|запрос|текст|документ|сообщени|wejści
    |dokumen|girdi|_metin_|_invoer|_tekst|văn bản|_teks_|النص|טקסט|_vstup|原稿|本文|資料|본문
    |全文|正文"""
)
STRONG_OVER = group(
    """too long|too large|too big|too much|exceed|overflow|longer than|bigger than|_shorten
    |cannot fit|can t fit|not fit|enough room|no room|_oversize|超过|超過|超出|超长|超長|过长
    |過長|过大|過大|超限|太长|太長|太大|zu lang|zu groß|zu viel|überschreit|überschritt
    |übersteig|passt nicht|trop long|trop grand|trop volumineu|trop de|dépass|excèd|excéd
    |demasiado|supera|exced|sobrepasa|ultrapassa|muito long|longo demais|muito grande|troppo
    |ecced|長すぎ|大きすぎ|多すぎ|超え|초과|너무 길|너무 깁|너무 긴|너무 많|너무 큽|너무 큰
    |превыш|превос|слишком|_t fit|za długi|zbyt dłu|przekracza|çok uzun|aş\u0131yor|te lang
    |te groot|overschrijdt|quá dài|vượt quá|terlalu panjang|melebihi|طويل|příliš|занадто|넘었
    |넘습|넘는|越え|больше допустим|超出模型|超过模型|länger als|größer als|grösser als
    |mehr als|plus long|plus grand|supérieur|más larg|más grande|mayor que|maior que
    |maior do que|più lung|più grande|太多|длиннее|больше чем|より長い|보다 깁|보다 긴|보다 큽
    |muy larg|muy extens|demasiada|assai lung"""
)
TOKENS = group("_token|_jeton|토큰|токен|トークン")
MANY_TOKENS = group(
    """_t fit|te veel|za dużo|przekracza|넘었|넘는|超過|超え|over the allowed|over the maximum
    |too many|more than|larger than|greater than|_over the|limit reached|exceed|_above_|_up to_
    |_accepts_|_beyond_|cannot fit|not fit|zu viel|überschreit|überschritt|übersteig|trop de
    |dépass|demasiad|supera|superó|exced|ultrapassa|muitos|troppi|超过|超出|超|초과|превыш
    |слишком|最多|最大|上限|_fit_|at most|_max_|_maximum"""
)
PAST = group("_past the|_beyond the|_outgrow|_overruns|_outside the")
MEASURE = group(
    """_tokens|_context|_window|_words_|_pages_|长度|長度|长文|字数|長さ|文字数|トークン|길이|글자
    |토큰|длин|объем|объём|токен|_länge_|_umfang|_longueur|_longitud|_comprimento|_lunghezza"""
)
EXCESS = group(
    """more than|larger than|greater than|_above_|_at most|_beyond_|_over the|_maximum of
    |_no more than|_up to|_limit of|_limited to|_goes over|_is over"""
)
WINDOW = group("_window|_context|_limit_")
TOO_SMALL = group(
    """_reicht|_suffi|_suficiente|_not enough|insufficient|_too small|_zu klein|_trop petit
    |_exhaust|_full_|_overflow|_demasiado pequeñ|_troppo piccol|不足|太小|недостат|слишком мал
    |부족|足り"""
)
SHORTER = group(
    """_shorter|_smaller|_fewer|_trim|_split_|_chunk|_condense|_reduce|_less text|_cut down
    |_cut the|_kürz|_raccourci|_réduis|_rédui|_acort|_reduz|_reduc|_abbrevi|_riduc|сократ
    |уменьш|缩短|缩减|分段|減ら|短く|줄여|줄이"""
)
SHORTENED = group(
    """_prompt|_input|_text_|_document|_message|_token|_content_|_context|_conversation|_eingabe
    |_texte_|_texto_|_testo_|_entrada|_entrée|запрос|текст|промпт|输入|内容|文本|入力|文章|입력"""
)
OPEN_ACCOUNT = group("_verify|_verified|_verification|_activate|_bind_|_confirm_|_complete_")
VERIFIED = group("_account_|_email|_phone|_identity|_organization_|_organisation_|_billing info")
QUEUE = group("_queue|队列|佇列|キュー|очеред|warteschlange|file d attente|대기열")
QUEUED = group("_full_|_limit|_maximum|exceed|too long|overflow|已满|満|переполн|voll|plein|가득")
PLANS = group(
    """_subscription|_paid plan|_paid tier|_pro plan|_paid account|_premium plan|_active plan"""
)
NEEDED = group(
    """_require|_need|_only_|_upgrade|_must|_no_|_without|_inactive|_cancel|_lapsed|_not have"""
)
WINDOW_NAME = group(
    """_context window|_context length|_context size|_context limit|_max~model~len|_max~seq~len
    |_n~ctx|_sequence length|_prompt length|_input length|_input tokens|_prompt tokens
    |_input~tokens|_prompt~tokens|_kontextfenster|_kontextlänge|_fenêtre de contexte
    |_longueur de contexte|_ventana de contexto|_janela de contexto|_finestra di contesto
    |контекстн|длина контекста|上下文长度|上下文窗口|上下文長度|コンテキスト長|컨텍스트 길이
    |_max~input~len|_max~input~length|_max~sequence|_max~context|_max~position
    |ventana de contexto|janela de contexto|finestra di contesto|окно контекста|окна контекста"""
)
DIGITS = tuple(f" {digit}" for digit in range(1, 10))
OUTPUT = group(
    """_max~tokens|_max~completion~tokens|_max~output~tokens|_max~new~tokens|_completion tokens
    |_output tokens|_output limit"""
)
# Limits of other things than the input.
OF_RATE = group(
    """_rate_|_requests_|_par minute|_pro minute|_por minuto|_al minuto|_per min|_per day
    |_per second|_per hour|_rpm_|_tpm_|_rpd_|_tpd_|_qps_|_quota|throttl|_concurren|_frequen
    |_wait_|_try again in|_retry after|_daily|_monthly|_anfragen|_requêtes|_solicitudes
    |_peticiones|_requisições|_solicitações|_richieste|запросов|频|并发|流控|限流|次数|过多请求
    |请求过多|リクエストが多|リクエスト数|回数|요청이|요청 수|요청 한도|횟수|每分钟|每分鐘|每秒
    |每天|每日|毎分|毎秒|분당|초당|в минуту|в секунду|в день|por segundo|por día|par seconde
    |par jour|pro sekunde|pro tag|al secondo|al giorno|_an hour|_a minute|_a second|_a day
    |_each minute|_each second"""
)
OF_PARAMETER = group(
    """_array_|_stop_|_temperature|_top~p|_top~k|logprobs|logit~bias|_prompt~cache|_penalty|_seed_
    |_valid range of|_maximum value|_embedding|_batch size must|_header
    |_max~tokens must be greater|_or equal to 0|_or equal to 1|_greater than 0
    |_must be positive|_positive integer|_entries_|_items_|_elements_|_pixel|_dimension"""
)
OF_OTHER_SIZE = OF_RATE + OF_PARAMETER

# ---- filtered

SAFETY_WORDS = group(
    """_content filter|_content~filter|_content audit|_pii detect|_content polic
    |_content moderation|_jailbreak|_safety system|_responsible ai|_prohibited content
    |_safety check|_inappropriate|_unsafe content|_content management|_usage guidelines
    |_censorship|_high risk|_content exists risk|_risk detect|_illegal detect|_harmful
    |_prompt guard|_nsfw|_hate speech|_safety guard|_safety block|_content safety
    |_prompt injection|_disallowed topic|_disallowed content|_forbidden topic|_sensitive word
    |_sensitive topic|_moderation_|违禁|違禁|内容审核|內容審核|敏感|违规|違規|涉敏|不合规
    |不合規|审核不|内容安全|內容安全|不当内容|不當內容|不安全|违法|違法|不適切|有害|부적절|유해
    |unangemessen|inappropri|inapropiad|inadequad|inappropriat|неприемлем|недопустим
    |_blocked entit|_pii_|_safety reason|_safety concern|_safety rating|_trust and safety
    |_adult content|_explicit content|_age restricted|_sexual content|_security risk"""
)
CONTENT = group(
    """_content|_prompt|_input|_output|_text_|_words|_word_|_completion|_generation|_message
    |_image|_response|_information|_document_|内容|內容|输入|輸入|输出|輸出|文本|_inhalt
    |_eingabe|_contenu|_contenido|_conteúdo|_contenuto|_texte|_texto|_testo|コンテンツ|入力
    |콘텐츠|입력|내용|контент|содерж|запрос|текст"""
)
REFUSED_CONTENT = group(
    """_flagged|_unsafe|_sensitive|_prohibited|_blocked|_filtered|_offensive|_censor|_disallowed
    |_harm_|_objectionable|_toxic|_new~sensitive|_not comply|_non compliant|_unlawful
    |_illegal content|_abusive|bloqué|bloquead|bloccat|blockiert|gefiltert|gesperrt|запрещ
    |заблокир|ブロック|차단|不允许|不允許|禁止|非法|受限|no permitid|non autorisé|nicht erlaubt
    |não permitid|non consentit|недопуст|許可されていない|許可されない|허용되지|_not allowed_
    |_not permitted_|_unacceptable|_objected|_indecent"""
)
VIOLATES = group(
    """_violat|_infring|_against|_breach|_contraven|_verst|_verletz|_enfreint|_contrevient|_viola
    |違反|위반|наруша|违反|不符合|_breaks|_broke_|_breaking|_not in line|_not compliant
    |_not conform|_contrary|_infraç|_vulner|_incumpl|_descumpr|_łami|_narusz|抵触|어긋"""
)
POLICY = group(
    """_polic|_guideline|_practices|_terms of|_safety|_usage|_community|_rules|_regulation
    |richtlinie|nutzungsbedingung|politique|política|normas|règles|ポリシー|規約|정책|политик
    |правил|政策|规定|規定|法律|法规|法規|_content rule|_terms_|_code of conduct|_standards
    |_bedingung|_условия|利用規約|ガイドライン|约定|条款|규정|약관|가이드라인"""
)
GUARD = group(
    """_guardrail|_guard_|_safety_|_moderat|_classifier|_dlp_|_content filter|_policy_
    |sicherheitsfilter|inhaltsfilter|sicherheitsprüfung|filtre de|filtre_|filtro|moderaci
    |moderaç|moderazion|modération|модерац|фильтр|安全策略|安全过滤|审核|審核|风控|風控|合规检
    |セーフティ|安全フィルタ|コンテンツフィルタ|안전 필터|안전필터|필터|검열|_filters_|_filter_
    |_censor|_screening|_safeguard"""
)
GUARDED = group(
    """_block|_flag|_violat|_interven|_refus|_reject|_fail|_trigger|_denied|_deny|_declin|_tripped
    |_stopped by|_caught by|_not pass|_detect|abgelehnt|blockiert|verweiger|ausgelöst|rejet
    |bloqu|déclench|rechaz|rejeitad|recusad|rifiutat|bloccat|отклон|заблок|сработ|拒绝|拒絕
    |拦截|攔截|未通过|未通過|不通过|触发|觸發|命中|屏蔽|ブロック|拒否|차단|거부|감지|_stopped
    |_stop_|_filtered|_withheld|_removed|_dropped|_caught|_matched|_hit_"""
)
TOPICS = group(
    """_violen|_sexual|_porn|_nudity|_hate_|_self harm|_suicid|_weapon|_terror|_illegal|_minors_
    |_medical advice|_political|_copyright|_profanity|_abus|暴力|色情|政治|违法|性的|폭력
    |насили"""
)
REFUSED = group(
    """_not allowed|_flagged|_blocked|_refus|_reject|_declin|_prohibit|_forbidden|_disallow
    |_detected"""
)
SENSITIVE = group("_sensitive data|_sensitive information|_personal data|_confidential|_secrets_")
FOUND = group("_found|_detect|_contains|_includ|_block")

# ---- rate

RATE_WORDS = group(
    """_rate limit|_ratelimit|_rate exceed|_rate quota|_too many requests|throttl|_too frequent
    |_too often|_rpm|_tpm|_qps|_slow down|_tokens per min|_requests per|_queries per|_calls per
    |_calls minute|_request limit|_resource exhausted|_resource has been|_concurrency|_too fast
    |_too quickly|_parallel requests|_simultaneous requests|_parallel calls|频繁|頻繁|频率|頻率
    |请求量|調用量|调用量|调用次数|请求次数|限流|流控|并发|過於頻繁|请求过多|請求過多|限速|速率
    |访问限制|使用上限|_zu viele anfragen|_ratenlimit|_anfragelimit|_trop de requêtes
    |_limite de débit|_limite de requ|_demasiadas solicitudes|_demasiadas peticiones
    |_muitas solicit|_muitas requisi|_troppe richieste|リクエストが多すぎ|リクエスト数
    |レート制限|요청이 너무 많|요청 한도|속도 제한|слишком много запросов|лимит запросов
    |частота запросов|_anfragen pro|_requêtes par|_solicitudes por|_peticiones por
    |_requisições por|_richieste al|запросов в|분당 요청|_usage limit|_call limit|_calls limit
    |_api limit|过快|過快|太快|太频繁|_calls in one|_requests in one|_calls a second
    |_requests a second|_requests a minute|_calls a minute|_throughput quota|_too many calls
    |_calling too|_request rate|_flood"""
)

# ---- capacity

BUSY_WORDS = group(
    """_overloaded|_over capacity|_high demand|_high traffic|_high load|_server busy|_too busy
    |_is busy|_no capacity|_capacity exceeded|_capacity temporarily|_no valid executor
    |_queue is full|_queue full|_queue exceeded|_pending requests|_no available|_loading model
    |_currently loading|_is loading|_still loading|_heavy load|_resource unavailable
    |_resources exhausted|_no deployments available|_too many connections
    |_unable to handle additional|_insufficient capacity|_at capacity|_cold start|_warming up
    |无可用|無可用|负载|負載|繁忙|访问量过大|过载|過載|容量不足|资源不足|算力不足|饱和|飽和
    |排队|排隊|拥挤|擁擠|正忙|überlastet|ausgelastet|surchargé|sobrecargad|sobrecarregad
    |sovraccaric|混雑|混み合|過負荷|과부하|혼잡|перегруж|_maximum capacity|_full capacity
    |_capacity reached|_capacity limit|_out of capacity|_capacity constraint|_full load
    |_heavy usage|_overwhelm|_congest|_high volume|_requests waiting|_requests queued
    |_under load|_backpressure|нет свободных|нет доступных|사용자가 많|이용자가 많|접속자가 많
    |利用者が多|アクセスが集中|使用人数较多|人数过多|_try again later due to load
    |_plus de capacité|_keine kapazität|_sin capacidad|_sem capacidade|_capacité insuffisante"""
)
SERVING = group(
    """_gpu|_worker|_server|_model_|_models_|_instance|_slot|_replica|_node_|_nodes_|_backend
    |_engine|_service_|_queue|_deployment|_machine|_cluster|_compute|_pool_|_container|_serveur
    |_servidor|_servizio|_servicio|_serviço|_dienst|_modell_|_modèle_|_modelo_|_modello_|сервер
    |модель|服务|服務|模型|サーバ|モデル|서버|모델|_serveurs_|_servidores_|实例|引擎|エンジン
    |엔진"""
)
BUSY = group(
    """_busy|_saturat|_occupied|_in use|_loading_|_is starting|_scaling_|_cold_|_asleep|_sleeping
    |_waking|_provisioning|_starting up|_booting|_scaling up|_not ready|_spinning up
    |_initializing|_is full|_being loaded|_overload|_satur|_occup|_wird geladen|_besetzt
    |_en cours de chargement|_cargando|_carregando|занят|загружается|加载中|載入中|启动中|忙
    |読み込み中|ロード中|起動中|로딩|로드 중|준비 중|belegt|正在启动|正在啟動|初始化|启动
    |準備中|_starting_|_still start|_warm up|_warming|_restarting|_being started
    |_wird gestartet|_hochgefahren|_démarr|_arranc|_inici|_avvi|запускается|загруж|起動"""
)
HARDWARE = group(
    """_gpu|_worker|_instance|_slot|_replica|_node_|_nodes_|_pool_|_machine|_cluster|_compute
    |_container|_executor|_accelerator|_backends_|显卡|算力|_instanz|_instancia|_instância
    |_istanz|インスタンス|인스턴스|实例"""
)
USED = group(
    """_exhaust|_unavailable|_not available|_taken_|_all used|_in use|_busy|_full_|_occupied
    |belegt|_ocupad|_occupé|_occupat|使用中|사용 중|занят"""
)
NONE_OF = group(
    """_no_|_not enough|_insufficient|_zero_|_none of|_lack of|_without|_not sufficient|_out of_
    |_ran out of|_short of|_too few|_missing_"""
)
FREE = group("_available|_free_|_idle_|_ready|_healthy|_capacity|_online")

# ---- money

FUNDS = group(
    """_balance|_credit_|_credits_|_funds_|_fund_|_wallet|_prepay|_prepaid|_spend limit|_spending
    |_budget_|_payment|_billing|_invoice|_spend_|_overdraft|余额|餘額|额度|額度|余量|资源包
    |資源包|套餐|费用|費用|账户余|_guthaben|_kontostand|_zahlung|_rechnung|_solde_|_crédit
    |_fonds_|_paiement|_facture|_forfait|_saldo|_fondos|_fundos|_crédito|_pago_|_pagamento
    |_factura|_fatura|_credito|_fondi_|残高|クレジット|料金|支払|課金|잔액|크레딧|결제|요금
    |баланс|средств|кредит|оплат|_allowance|_bakiye|środk|saldo konta|_tegoed|số dư|_kredit
    |_extra usage|_package|_cost limit|_cost cap|_usage cap|_card_|_hard limit|_contingent
    |_kontingent"""
)
LACKING = group(
    """insufficient|too low|deplet|exhaust|_enough_|_out of_|exceed|_limit|_cap_|_reached|_hit_
    |overdue|expired|_required|_enter_|_negative|_used all|_used up|_fail|_need|_add_
    |_not enabled|_not active|_inactive|_disabl|_to be enabled|_no billing|_no remaining
    |_is empty|_empty_|_purchase|_buy_|_recharge|_top up|_refill|afford|_suspend|_more credits
    |_no credit|_no fund|_no balance|_no payment|_zero_|_0_|_0.00_|_0.0_|_ran out|_run out
    |_left_|_below_|_lapsed|_ended|_unpaid|_outstanding|_past due|_settle_|_any credits|_lacks_
    |_short of|不足|用尽|用盡|用完|耗尽|耗盡|欠费|欠費|充值|儲值|续费|續費|到期|过期|過期|为0
    |為0|为零|购买|購買|reicht nicht|aufgebraucht|erschöpft|_kein|_leer_|aufladen
    |nicht ausreich|_offene_|insuffis|épuis|recharge|_vide_|_nul_|impay|_aucun|insuficien|agot
    |esgot|_cero_|recargue|recarreg|añad|adicion|_sin_|_sem_|impagad|vencid|esaurit|ricaric
    |_senza_|terminat|insufficien|ありません|切れ|チャージ|使い切|足りません|購入|부족|소진
    |없습|충전|недостаточно|исчерпан|пополн|кончил|не хватает|нулев|отрицательн|_нет_|истек
    |истёк|_consumed|_over budget|_spent_|yetersiz|brak|niewystarcz|onvoldoende|không đủ
    |tidak cukup|足りない|모자|_declin|_rejected|_no queda|_no hay|_n y a plus|_plus de|_não há
    |_used_|verbraucht|_out of extra|_t sufficient|_not sufficient|_not cover|_t cover|使い果
    |なくなり|소모|no alcanza|ne suffit|non basta|não é suficiente|не осталось|fehlgeschlag
    |échou|fallid|falhou|fallit|beglei|ausgleich|_réglez|_abon|_regulariz|_liquid"""
)
NO_MONEY_WORDS = group(
    """欠费|欠費|_payment required|_arrear|_exceeded budget|_over budget|_insufficient quota
    |_insufficient user quota|_api usage limits|_free allocation|_recharge|_account overdue
    |_overdue balance|_key limit exceeded|_no active subscription|残高不足|_unpaid_|_past due_
    |_please pay_|_purchase more|_purchase extra|_purchase additional|_buy more|_buy extra
    |_buy additional|_top it up|_please subscribe|_requires a subscription
    |_subscription required|_subscription is required|_requires a paid|_paid plan required
    |_paid account required|_run dry|_upgrade for access|_pay first|续订|開通付費|开通付费
    |_quota is not enough|_quota not enough|_not enough quota|_pre consume
    |_quota is insufficient|额度不够|余额不够"""
)
NO_CHARGE = group(
    """_thinking|_rate limit|_load balanc|_not needed|_not required|_not necessary
    |_no payment required|_no payment needed|_not be charged|_not charged|_provisioned"""
)
PLAN = group(
    """_monthly|_allowance|_free tier|_free quota|_your plan_|_of the plan_|_subscription
    |_free credits"""
)
PLAN_PARTS = group("_quota|_usage|_limit|_free tier|_free quota|_allocation|_expir|_free credits")
PLAN_USED = group("_consumed|_reached|exceed|_exhaust|_used up|_expired")
TRIAL = group(
    """_trial|_free tier|_free quota|_free credits|_free plan|_subscription|_membership
    |_free period|_paid plan|_license|_licence|_abonnement|_abo_|_testphase|_suscripci
    |_assinatura|_abbonamento|_prueba|_essai|_prova|подписк|пробн|免费|免費|试用|試用|会员|會員
    |無料|구독|무료|체험|_testzeit|_probezeit|_evaluation period|_demo period|_promotion
    |_voucher|_coupon|_grace period"""
)
ENDED = group(
    """_ended|_is over|_over_|_expir|_exhaust|_lapsed|_used up|_finished|_run out|_ran out
    |_inactive|_cancel|_no active|_renew|_consumed|_exceeded your|_has passed|_terminated
    |abgelaufen|beendet|expiré|terminé|caduc|terminad|vencid|expirad|scadut|finit|истек|истёк
    |кончил|用完|用尽|用盡|耗尽|到期|过期|過期|结束|結束|終了|切れ|만료|종료|소진|使い切|使い果
    |_has run|_over and|abgeschlossen|_agot|_esgot|épuis|esaurit|verbraucht|aufgebraucht"""
)
BUY = group(
    """_buy_|_purchase|_recharge|_top up|_topup|_renew_|_refill_|充值|儲值|续费|續費|购买|購買
    |rechargez|recargue|recarregue|ricaric|aufladen|nachkaufen|пополн|チャージ|충전"""
)
BOUGHT = group(
    """_quota|_token|_package|_plan_|_account|_credit|_balance|_subscription|_pack_|账户|帳戶|帐户
    |套餐|额度|額度|_compte|_cuenta|_conta_|_konto|счет|счёт|баланс|アカウント|계정"""
)

# ---- key, account, model

KEY = group(
    """api key|apikey|_api token|_access token|_authentication|_authorization|_credential
    |_security token|_secret key|_login|_bearer|_clé d api|_clé api|_clef api|api schlüssel
    |_clave de api|_clave api|_chave de api|_chave da api|_chave api|_chiave api|_chiave
    |api ключ|ключ|api 키|api키|apiキー|api キー|密钥|密鑰|令牌|鉴权|认证|認証|인증|_klucz
    |api anahtar|_api sleutel|_sleutel|khóa api|_credencial|_identifiant|_zugangsdaten
    |учетные данные|認証情報|_unauthenticated|_schlüssel|_clé_|_clave_|_chave_|_access key
    |_service key|_signing key|アクセスキー"""
)
BAD_KEY = group(
    """_invalid|_incorrect|_not valid|_expir|_missing|_revo|_wrong|_no longer valid|_unauthor
    |_multiple|_fail|_carry|_not authorized|_no api|_not provided|_disabl|_deactivat|_suspen
    |_blocked|_deleted|_banned|_inactive|_not active|_malformed|_not recognized|无效|無效|错误
    |錯誤|过期|過期|禁用|停用|失效|吊销|吊銷|封禁|失败|不正确|不存在|ungültig|abgelaufen
    |gesperrt|deaktiviert|widerrufen|falsch|invalide|inválid|expiré|révoqué|désactivé|caduc
    |expirad|expirou|revocad|revogad|desactivad|desativad|vencid|no es válid|não é válid|scadut
    |revocat|disattivat|non valid|non è valid|неверн|недействит|истек|истёк|отозван|отключ
    |заблок|無効|期限切れ|失効|正しくありません|유효하지|만료|잘못|비활성|정지|geçersiz
    |nieprawidł|wygas|ongeldig|không hợp lệ|tidak valid|_not accepted|_no longer|_no reconocid
    |_no válid|_rejected|_refused|_rotated|_replaced|_removed|_does not exist|_not exist
    |_not found|_unknown|_denied|不正|不明|거부|_n est plus|_plus valide|_ya no|_já não
    |_non è più|_nicht mehr|больше не|fehlgeschlag|échou|fallid|falhou|fallit|_does not match
    |_mismatch"""
)
THIS_KEY = group("_key_|_this token_|_your token_|_token has|_token was|_token is")
ENDED_KEY = group("_revo|_disabl|_deactivat|_suspen|_expir|_blocked|_deleted|_banned|_terminated")
ACCOUNT = group(
    """_account_|_organization_|_organisation_|_project_|_workspace_|_team_|_user_|_tenant_
    |_consumer_|_konto_|_compte_|_cuenta_|_conta_|аккаунт|账号|帳號|账户|帐户|用户|アカウント
    |계정"""
)
CLOSED_ACCOUNT = group(
    """_suspen|_disabl|_deactivat|_blocked|_banned|_terminat|_archived|_restricted|_closed|_frozen
    |_locked_|_inactive|gesperrt|deaktiviert|suspendu|désactivé|bloqué|suspendid|suspens
    |bloquead|sospes|заблок|封禁|禁用|冻结|停用|停止|정지|차단|锁定|鎖定|_suspended|停止されて
    |suspendida|cerrad|geschlossen|fermé|encerrad|chius|закрыт|冻結|凍結|잠겼|_deleted_"""
)
MODEL = group(
    """_model_|_model~id_|_deployment_|_model id|_specified model|模型|_modell_|_modèle|_modelo
    |_modello|モデル|모델|модел"""
)
NO_MODEL = group(
    """_not found|_not exist|_does not exist|_doesn t exist|_no such|_decommission|_retired
    |_not recognized|_not available for your|_not have access|_no access|_not served
    |_not hosted|_not deployed|_not allowed to use|_not permitted to use|_not entitled
    |_not installed|_not activated|_not work with|_nicht gefunden|_introuvable|_no se encuentra
    |_não encontrad|_non trovat|_not a valid|不存在|_existiert nicht|_n existe pas|_no existe
    |_não existe|存在しません|未开通|无权|_kein zugriff|_pas accès|не найден|не существует
    |찾을 수 없|존재하지|_cannot find|_can t find|_could not find|_couldn t find
    |_unable to find|_not loaded|_not provided by|_no longer available|_deprecated
    |_discontinued|_is paused|_been removed|_was removed|_withdrawn|_not granted|_access denied
    |_denied access|_no permission|_no rights|_restricted|_not included|_not part of|_locked_
    |_gated|accès refusé|没有权限|未授权|_isn t supported|_t supported with|_not enabled for
    |_not subscribed|_inference profile"""
)
NO_ACCESS_WORDS = group(
    """_organization has been disabled|_location is not supported|_invalid model
    |_free tier is not available in your country|_model identifier is invalid|_no models loaded
    |_unknown model|_unauthorized|_invalid token_|_token expired|鉴权失败|未授权
    |_plain http request was sent|_http request to an https server|_required ssl certificate
    |_the ssl certificate error|_login fail|_permission denied|_access denied|_not authorized
    |_no permission|_insufficient permission|_not permitted to access|没有权限|权限不足|无权限
    |無權限|доступ запрещ|acceso denegado|accès refusé|zugriff verweigert|accesso negato
    |acesso negado|アクセスが拒否|権限がありません|권한이 없|_model is not supported
    |_model not supported|_requested model is not|_unsupported model|_no provider
    |_unknown deployment|_unknown engine|_whitelist|_allowlist|_bad credentials
    |_signature mismatch|_signature does not match|_unsupported country|_unsupported region
    |_country is not|_region is not|实名认证|实名|未开通|未開通|未激活|_service not activated
    |_not been activated|_has not been used in project"""
)

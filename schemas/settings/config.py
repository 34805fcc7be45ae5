"""The configuration as frozen values; each field of a setting has its check, meaning and default.

`schemas/settings/sources.py` says where the values come from, and in which order.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, Literal

from docllm.schemas.runtime.address import Address
from docllm.schemas.settings import kinds
from docllm.schemas.settings.headers import headers as header_table
from docllm.schemas.settings.kinds import TRACE_ID, setting
from docllm.schemas.settings.quota import (
    CALLS,
    NO_LIMITS,
    REQUESTS,
    NamedLimit,
    QuotaLimits,
    TenantConfig,
    TenantDefaults,
)
from docllm.schemas.settings.schedule import schedule as hours
from docllm.schemas.settings.secret import Secret as Secret  # noqa: PLC0414 - its readers take it from here
from docllm.schemas.settings.wordings import wordings as wording_table
from docllm.schemas.task.hooks import Hooked, HookEvent
from docllm.schemas.task.record.topics import DEFAULT_TIERS
from docllm.schemas.task.task_types import BUILT_IN
from docllm.schemas.version import VERSION

DEFAULT_ROUTE = "default"
BYTES_PER_TOKEN = 4  # assumed in estimates
MAX_TOKENS = 1_000_000_000  # the largest context of a model; more is a mistake
_LIMIT_S = kinds.real(0.1, 86_400)
_PRICE = kinds.real(0, 1e6)


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Kafka's settings; without `bootstrap` the embedded bus is used.

    `client` are librdkafka settings (TLS, SASL, group.protocol).
    """

    bootstrap: str | None = setting(
        kinds.text,
        "brokers of Kafka, `HOST:PORT,...`; without it docllm uses the embedded bus",
        variable="DOCLLM_KAFKA_BOOTSTRAP",
    )
    client: dict[str, str] = field(default_factory=dict, repr=False)


class Structured(StrEnum):
    """The form in which a server is asked for an answer that fits a schema."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    NONE = "none"


class Trigger(StrEnum):
    """A failure on a route for which a task may go on to the route's fallback.

    All but `OUTAGE` have the name of an error class, which is the trigger by itself.
    """

    OUTAGE = "OUTAGE"  # the route is stopped, or parked for its key or model
    CAPACITY = "CAPACITY"  # the provider has no capacity
    TOO_LONG = "TOO_LONG"  # the task is too long for the model
    FILTERED = "FILTERED"  # the provider's filter refused the task or its answer
    MONEY = "MONEY"  # the account's money or quota is used up


@dataclass(frozen=True, slots=True)
class LLMConfig:
    """The provider account; without `base_url` no LLM is configured.

    `limits` are the provider's for `model`. `wordings` are those of the route.
    """

    base_url: str | None = setting(
        kinds.http_url,
        "address of an OpenAI-compatible server, up to but not including `/chat/completions`",
        variable="DOCLLM_LLM_BASE_URL",
    )
    api_key: Secret | None = setting(
        kinds.secret, "key for that address; never shown", variable="DOCLLM_LLM_API_KEY"
    )
    model: str | None = setting(
        kinds.text, "model of tasks that name none", variable="DOCLLM_LLM_MODEL"
    )
    timeout_s: float = setting(
        kinds.real(0.1, 86_400), "limit of one whole call, in seconds", 600.0
    )
    context_tokens: int | None = setting(
        kinds.whole(1, MAX_TOKENS), "how many tokens the model takes"
    )
    headers: dict[str, Secret] = setting(
        header_table,
        'table of headers for each call to that address, such as `{ "api-key" = "..." }`; their '
        "values are never shown",
        {},
    )
    structured: Structured = setting(
        kinds.choice(Structured),
        "form in which the server takes a task's schema: `json_schema`, `json_object`, or "
        "`none` for a server that takes none",
        Structured.JSON_SCHEMA,
    )
    limits: QuotaLimits = NO_LIMITS
    wordings: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def identity(self) -> Hashable:
        """A value that is equal for accounts that can share an HTTP client."""
        return self.base_url or "", self.api_key, frozenset(self.headers.items())

    @property
    def has_secrets(self) -> bool:
        """Whether calls carry a key or headers of this account."""
        return self.api_key is not None or bool(self.headers)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Settings of an agent. Agents with different releases have equal settings."""

    slots: int = setting(
        kinds.whole(1, 100_000),
        "most attempts that run at once in one agent",
        64,
        variable="DOCLLM_SLOTS",
    )
    drain_timeout_s: float = setting(
        kinds.real(0, 86_400),
        "time that running calls get when the agent is told to stop, in seconds",
        20.0,
    )
    sweep_slack_s: float = setting(
        kinds.real(0, 86_400),
        "the sweep publishes a task again when it has waited this much longer than the oldest "
        "record of its topics, in seconds",
        600.0,
    )
    park_probe_s: float = setting(
        kinds.real(1, 86_400),
        "time between probes (single calls) on a route that waits for a person, in seconds",
        60.0,
    )
    compact_after_s: float = setting(
        kinds.real(1, 86_400),
        "age at which counts are moved into sums, in seconds; guards and `status` look back ten "
        "minutes, and a smaller value shortens that",
        900.0,
    )
    http: Address | None = setting(
        kinds.address,
        "address on which an agent shows `/metrics`, `/livez` and `/readyz`, such as "
        "`127.0.0.1:9464`; with `--processes`, each further one takes the next port",
        variable="DOCLLM_AGENT_HTTP",
    )
    release: str = setting(
        kinds.release,
        "label under which an agent's attempts are counted, so that two releases can be "
        "[compared](../how-to/upgrade.md#compare-two-releases): 1 to 64 letters, digits, dots, "
        "dashes, underscores and plus signs; by default the version of docllm",
        VERSION,
        variable="DOCLLM_AGENT_RELEASE",
        compare=False,
    )


@dataclass(frozen=True, slots=True)
class OtelConfig:
    """Where traces go, in OTLP over HTTP, and which; nothing is traced without an `endpoint`.

    `named`: whether a setting named it, and not OpenTelemetry's own variable.
    """

    endpoint: str | None = setting(
        kinds.http_url,
        "address of an OpenTelemetry collector that takes OTLP over HTTP, such as "
        "`http://collector:4318`; without it, `OTEL_EXPORTER_OTLP_ENDPOINT` names one",
    )
    named: bool = False
    headers: dict[str, Secret] = setting(
        header_table,
        "table of headers for the collector, as `llm.headers`, in addition to those of "
        "`OTEL_EXPORTER_OTLP_HEADERS`; their values are never shown",
        {},
    )
    ratio: float = setting(
        kinds.real(0, 1), "share of tasks whose success is traced; failed attempts always are", 0.01
    )
    link_template: str | None = setting(
        kinds.trace_link,
        "address at which a person reads a trace, in which `{trace_id}` stands for its id; "
        "`show` shows it",
    )
    to_provider: bool = setting(
        kinds.truth, "whether calls of the provider carry a `traceparent` header", default=False
    )

    def link(self, trace_id: str) -> str:
        """Return where a person reads a trace; empty if no setting says it."""
        return (self.link_template or "").replace(TRACE_ID, trace_id)


@dataclass(frozen=True, slots=True)
class InboxConfig:
    """Settings of the group's inbox."""

    enabled: bool = setting(
        kinds.truth,
        "whether agents make tasks of the lines that your own producers write to `<group>.inbox`",
        default=True,
    )
    join_batches: bool = setting(
        kinds.truth,
        "whether records of the inbox may add tasks to batches that `load` made",
        default=False,
    )
    redrive: bool = setting(
        kinds.truth,
        "whether a dead letter that another tool writes back, to the inbox or to the topic it "
        "came from, replays its task",
        default=False,
    )
    max_backlog: int = setting(
        kinds.whole(0, 1_000_000_000),
        "unfinished tasks of the group from which on agents make no task of an inbox record; "
        "the records wait on Kafka; 0 is never",
        0,
    )


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """What agents do with batches that have been final for long enough; None: nothing.

    `archive`: the folder to which they archive a batch, a URI with a slash at its end. After
    `purge_after_s` they delete the rows of an archived batch.
    """

    archive: str | None = setting(
        kinds.folder,
        "folder or `s3://`, `gs://` or `az://` prefix to which an agent archives batches that "
        "have not changed for the time of `retention.purge`, or for a day",
        variable="DOCLLM_RETENTION_ARCHIVE",
    )
    purge_after_s: int | None = setting(
        kinds.seconds,
        "time from the last change of a batch after which an agent archives it and deletes its "
        "rows, such as `30d`; by default agents delete nothing",
        name="purge",
    )

    @property
    def archive_after_s(self) -> int:
        """How long a batch has been final when it is archived."""
        return 86_400 if self.purge_after_s is None else self.purge_after_s


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens, in the currency's unit."""

    input_per_mtok: float = setting(_PRICE, "price of a million tokens of the prompt", 0.0)
    output_per_mtok: float = setting(_PRICE, "price of a million tokens of the answer", 0.0)

    def cost_micro(self, tokens_in: int, tokens_out: int) -> int:
        """Return the price of these tokens in millionths of the currency's unit."""
        return round(tokens_in * self.input_per_mtok + tokens_out * self.output_per_mtok)

    def least_price_micro(self, input_bytes: int) -> int:
        """Return the estimated price of an input of this size, without the answer's price."""
        return self.cost_micro(input_bytes // BYTES_PER_TOKEN, 0)


@dataclass(frozen=True, slots=True)
class RouteConfig:
    """A provider account for one model. A value of None is inherited from `[llm]`.

    Key, headers and `structured` are inherited only if the address is that of `[llm]`, and
    `context_tokens` only if the model is `llm.model` at that address. `limits` also hold for other
    routes of the same account and model (`schemas/settings/account.py`).
    """

    base_url: str | None = setting(kinds.http_url, "as `llm.base_url`, which is the default")
    api_key: Secret | None = setting(
        kinds.secret, "as `llm.api_key`, which is the default if the route has the same address"
    )
    model: str | None = setting(
        kinds.text, "model that the route calls; by default the route's name"
    )
    timeout_s: float | None = setting(
        kinds.real(0.1, 86_400), "as `llm.timeout_s`, which is the default"
    )
    context_tokens: int | None = setting(
        kinds.whole(1, MAX_TOKENS),
        "how many tokens the model takes; `llm.context_tokens` holds for `llm.model` only",
    )
    headers: dict[str, Secret] | None = setting(
        header_table,
        "as `llm.headers`, which is the default if the route has the same address; a table of "
        "the route's own replaces it",
    )
    structured: Structured | None = setting(
        kinds.choice(Structured),
        "as `llm.structured`, which is the default if the route has the same address",
    )
    fallback: tuple[str, ...] = setting(
        kinds.names,
        "routes to which tasks go on, in this order, when this one cannot answer them; each is "
        "followed by its own `fallback`",
        (),
    )
    fallback_on: tuple[Trigger, ...] = setting(
        kinds.choices(Trigger),
        "failures after which tasks go on to the fallback: `OUTAGE` (the route is stopped, or "
        "parked for its key or model), `CAPACITY`, `TOO_LONG`, `FILTERED`, `MONEY`",
        (Trigger.OUTAGE, Trigger.CAPACITY, Trigger.TOO_LONG),
        shown="OUTAGE, CAPACITY, TOO_LONG",
    )
    wordings: dict[str, tuple[str, ...]] = setting(
        wording_table,
        "what refusals of this server mean: for a class, `TOO_LONG`, `FILTERED`, `RATE`, "
        "`CAPACITY`, `MONEY` or `AUTH`, a list of texts and `/expressions/`",
        {},
    )
    limits: QuotaLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class TypeConfig:
    """Settings of one type of task."""

    handler: str | None = setting(
        kinds.function, "`package.module:function`, a function of yours that runs the tasks"
    )
    run: Literal["agent", "process"] = setting(
        kinds.choice(("agent", "process")),
        "where the handler runs: in the `agent`, or in a `process` of its own, whose end costs "
        "the agent nothing",
        "agent",
    )
    memory_mb: int | None = setting(
        kinds.whole(32, 1 << 20),
        "MiB of memory from which on a handler's process is ended, as a failure that counts",
    )
    time_s: float | None = setting(
        _LIMIT_S, "seconds after which a handler's process is ended, as a failure that counts"
    )
    route: str | None = setting(
        kinds.text, "route of the tasks that name no model", shown="default"
    )
    max_attempts: int | None = setting(
        kinds.whole(1, 100), "as `retry.max_attempts`, which is the default"
    )
    retry: tuple[str, ...] = setting(
        kinds.names, "names of the handler's exceptions that are tried again", ()
    )
    give_up: tuple[str, ...] = setting(
        kinds.names, "names of the handler's exceptions that make the task dead at once", ()
    )
    delay_s: float = setting(
        kinds.real(0, 86_400), "least wait before a next attempt, in seconds", 0.0
    )
    model: str | None = setting(
        kinds.text, "model of the tasks that name none; a type has a `route` or a `model`"
    )
    prompt: str | None = setting(
        kinds.prompt,
        "prompt of the tasks that have none, with `{document}` where their input belongs",
    )
    schema: dict[str, Any] | None = setting(
        kinds.schema_file,
        "file with the JSON Schema of the tasks that have none; their answers are exported as JSON",
    )
    tiers: tuple[str, ...] = setting(
        kinds.tiers,
        "those of `retry.tiers` in which its tasks wait for a next attempt",
        (),
        shown="all",
    )
    slots: int | None = setting(
        kinds.whole(1, 100_000), "most attempts of the type that run at once in one agent"
    )
    in_flight: int | None = setting(
        CALLS, "most attempts of the type that run at once, in all agents together"
    )
    rpm: int | None = setting(
        REQUESTS, "most attempts of the type that begin in a minute, in all agents together"
    )
    schedule: str | None = setting(
        hours,
        "hours of the day in which its tasks run, such as `22:00-06:00 UTC`; attempts that run "
        "at their end go on",
    )
    soft_limit_s: float | None = setting(
        _LIMIT_S,
        "seconds after which the next call in a handler raises `SoftLimitError`, once, so that "
        "it can end with what it has",
    )
    time_limit_s: float | None = setting(
        _LIMIT_S, "seconds after which an attempt is ended, as a failure that counts"
    )
    on_loss: Literal["again", "dead"] = setting(
        kinds.choice(("again", "dead")),
        "what becomes of a task whose run was cut off, as when its agent was lost: it runs "
        "`again`, or is `dead`, because it may have finished",
        "again",
    )
    max_come_backs: int = setting(
        kinds.whole(1, 1_000_000),
        "how often a task's handler may come back by `ComeBackError`; then the task is given up",
        1000,
    )
    on_success: str | None = setting(
        kinds.function, "`package.module:function` of yours that runs after a task has succeeded"
    )
    on_retry: str | None = setting(
        kinds.function, "the same, after a failed attempt that will be retried"
    )
    on_dead: str | None = setting(
        kinds.function, "the same, after a task is dead or cancelled, such as to undo its work"
    )
    part_tokens: int | None = setting(
        kinds.whole(200, MAX_TOKENS),
        "most tokens of a part, where `map-reduce` splits a document; by default as many as the "
        "model takes",
    )
    overlap_tokens: int | None = setting(
        kinds.whole(0, 100_000),
        "how many tokens a part has in common with the one before it",
        shown="200",
    )
    merge_prompt: str | None = setting(
        kinds.text,
        "prompt that merges the answers for parts: `{answers}` stands for them, `{prompt}` for "
        "the task's own prompt",
    )
    strict_answer: bool = setting(
        kinds.truth,
        "whether an answer is taken as it is: no fence around it and no thoughts before it are "
        "taken off, before a schema is judged too",
        default=False,
    )
    whole_input: bool = setting(
        kinds.truth,
        "`true`: a task whose prompt the server has cut is dead as `INPUT_CUT`; otherwise its "
        "result has `truncated_input`",
        default=False,
    )

    @property
    def hooks(self) -> dict[HookEvent, str]:
        """The functions that run after an attempt has ended."""
        named = {
            HookEvent.SUCCESS: self.on_success,
            HookEvent.RETRY: self.on_retry,
            HookEvent.DEAD: self.on_dead,
        }
        return {event: path for event, path in named.items() if path is not None}

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit of how many attempts of the type run, or begin."""
        return (self.slots, self.in_flight, self.rpm) != (None, None, None)


NO_SETTINGS = TypeConfig()


@dataclass(frozen=True, slots=True)
class Config:
    """All settings; `file` is the configuration file that was read, None if there is none."""

    data_dir: Path = setting(
        kinds.path,
        "folder of the embedded parts (ledger, bus, locks), on a local disk; created with mode "
        "0700",
        Path("docllm-data"),
        variable="DOCLLM_DATA_DIR",
    )
    kafka: KafkaConfig = KafkaConfig()
    database_url: Secret | None = setting(
        kinds.database_url,
        "`mysql://USER:PASSWORD@HOST:3306/DATABASE`, also for MariaDB; required with Kafka",
        name="database.url",
        variable="DOCLLM_DATABASE_URL",
    )
    redis_url: Secret | None = setting(
        kinds.redis_url,
        "`redis://` or `rediss://`; optional, lets agents share which routes have stopped",
        name="redis.url",
        variable="DOCLLM_REDIS_URL",
    )
    llm: LLMConfig = LLMConfig()
    agent: AgentConfig = AgentConfig()
    http_token: Secret | None = setting(
        kinds.secret,
        "what clients of `serve` and readers of metrics send as `Authorization: Bearer TOKEN`; "
        "needed on addresses "
        "that other machines reach; never shown",
        name="http.token",
        variable="DOCLLM_HTTP_TOKEN",
    )
    log_format: Literal["text", "json"] = setting(
        kinds.choice(("text", "json")),
        "`json` makes each line of the log an object, for programs that gather logs",
        "text",
        name="log.format",
        variable="DOCLLM_LOG_FORMAT",
    )
    otel: OtelConfig = OtelConfig()
    # Also the time from one prompt to a guard's route to the next. A look that has lasted longer
    # ends once none of its tasks runs.
    guard_probe_s: float = setting(
        kinds.real(1, 86_400),
        "time between two looks of a guard, each of which tries some of its tasks, in seconds",
        300.0,
        name="guard.probe_s",
    )
    inbox: InboxConfig = InboxConfig()
    serve_joins: bool = setting(
        kinds.truth,
        "whether tasks that are posted to `docllm serve` may join batches that `load` made",
        default=False,
        name="serve.join_batches",
    )
    serve_files: Path | None = setting(
        kinds.path,
        "folder in which `docllm serve` keeps uploaded files for 30 days; all servers of a group "
        "need the same one",
        shown="`files` in `data_dir`",
        name="serve.files",
    )
    retention: RetentionConfig = RetentionConfig()
    on_batch_done: kinds.BatchHook | None = setting(
        kinds.batch_hook,
        "what an agent calls when a batch is "
        "[done](../how-to/watch.md#be-told-when-a-batch-is-done), at least once: "
        '`package.module:function`, an `https://` address, or `{ command = "..." }`',
        name="hooks.on_batch_done",
    )
    results_topic: bool = setting(
        kinds.truth,
        "whether agents write the line of each task that has succeeded or is dead to "
        "[`<group>.results`](../how-to/output.md#results-as-a-stream), at least once",
        default=False,
        name="results.topic",
    )
    tenant_defaults: TenantDefaults = TenantDefaults()
    document_roots: tuple[Path, ...] | None = setting(
        kinds.paths,
        "folders from which agents may read documents; by default the current folder on "
        "embedded parts, otherwise none",
        name="documents.roots",
        variable="DOCLLM_DOCUMENT_ROOTS",
    )
    document_allow: tuple[str, ...] = setting(
        kinds.uri_prefixes,
        "URI prefixes below which agents may read documents that are not files, and write "
        "results; each ends with `/`, such as `s3://bucket/reports/`",
        (),
        name="documents.allow",
        variable="DOCLLM_DOCUMENT_ALLOW",
    )
    document_private: tuple[IPv4Network | IPv6Network, ...] = setting(
        kinds.networks,
        "networks of your own, such as `10.0.0.0/8`, in which the servers of `https://` "
        "documents may be; otherwise documents come from public addresses only",
        (),
        name="documents.private",
        variable="DOCLLM_DOCUMENT_PRIVATE",
    )
    document_kept_mb: int = setting(
        kinds.whole(0, 1_000_000),
        "MiB in the data folder for the cached texts of converted documents, so that further "
        "tasks on a document need no conversion; 0 turns the cache off",
        512,
        name="documents.kept_mb",
        variable="DOCLLM_DOCUMENT_KEPT_MB",
    )
    retry_tiers: tuple[str, ...] = setting(
        kinds.tiers,
        "delays of the retry topics; the longest is also how long tasks wait for closed routes",
        DEFAULT_TIERS,
        name="retry.tiers",
        variable="DOCLLM_RETRY_TIERS",
    )
    max_attempts: int = setting(
        kinds.whole(1, 100),
        "most counted attempts of a task, unless its line or its type sets another number",
        5,
        name="retry.max_attempts",
        variable="DOCLLM_MAX_ATTEMPTS",
    )
    prices: dict[str, Price] = field(default_factory=dict)
    routes: dict[str, RouteConfig] = field(default_factory=dict)
    tenants: dict[str, TenantConfig] = field(default_factory=dict)
    limits: dict[str, NamedLimit] = field(default_factory=dict)
    types: dict[str, TypeConfig] = field(default_factory=dict)
    file: Path | None = field(default=None, compare=False)
    up_by_s: float = field(default=0.0, compare=False)  # until then, servers may come up (--wait)

    @property
    def embedded(self) -> bool:
        """Whether ledger and bus are files in `data_dir`."""
        return self.kafka.bootstrap is None

    @property
    def texts_folder(self) -> Path:
        """The folder in which agents of this machine keep the texts of converted documents."""
        return self.data_dir / "texts"

    @property
    def uploads_folder(self) -> Path:
        """The folder of the files that clients of `docllm serve` upload."""
        return self.serve_files or self.data_dir / "files"

    @property
    def hooked(self) -> Hooked:
        """The events for which types have a hook."""
        return {name: frozenset(of_type.hooks) for name, of_type in self.types.items()}

    @property
    def dead_on_loss(self) -> frozenset[str]:
        """The types whose tasks do not run again after they were cut off."""
        return frozenset(name for name, of in self.types.items() if of.on_loss == "dead")

    @property
    def known_types(self) -> frozenset[str]:
        """The types of task that have a meaning here: built-in and configured ones."""
        return BUILT_IN | self.types.keys()

    def knows_type(self, name: str) -> bool:
        """Return whether a type of task has a meaning here.

        The row of a foreign writer may name no type; such a task is a document.
        """
        return not name or name in BUILT_IN or name in self.types

    def type_settings(self, name: str) -> TypeConfig:
        """Return the settings of a type, which may have none."""
        return self.types.get(name, NO_SETTINGS)

    def tiers_of(self, task_type: str) -> tuple[str, ...]:
        """Return the retry tiers of a type."""
        return self.type_settings(task_type).tiers or self.retry_tiers

    def max_attempts_of(self, task_type: str) -> int:
        """Return how many attempts a task of this type may have, unless its line says otherwise."""
        own = self.type_settings(task_type).max_attempts
        return self.max_attempts if own is None else own

    def tenant(self, name: str) -> TenantConfig | TenantDefaults:
        """Return what a tenant may take."""
        return self.tenants.get(name) or self.tenant_defaults

    def roots(self) -> tuple[Path, ...]:
        """Return the folders below which documents may be read.

        The default is the current folder on embedded parts, and no folder otherwise.
        """
        if self.document_roots is not None:
            return self.document_roots
        return (Path.cwd(),) if self.embedded else ()

"""The configuration as frozen values.

`schemas/settings/sources.py` says where they come from, and in which order.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.address import Address
from docllm.schemas.settings.quota import NO_LIMITS, QuotaLimits, TenantConfig, TenantDefaults
from docllm.schemas.task.hooks import Hooked, HookEvent
from docllm.schemas.task.record.topics import DEFAULT_TIERS
from docllm.schemas.task.task_types import BUILT_IN
from docllm.schemas.version import VERSION

DEFAULT_ROUTE = "default"
BYTES_PER_TOKEN = 4  # assumed in estimates
TRACE_ID = "{trace_id}"  # stands for the id in a template of links to traces


class Secret:
    """A text that must not be shown.

    `repr`, `str` and formatting give dots; `reveal()` gives the text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret, to send, compare or hash it, or to mask it in texts of others.

        Nobody stores or shows it; a test lists who calls this, and for what.
        """
        return self._text

    def __repr__(self) -> str:
        return "Secret(...)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def authorization(api_key: Secret | None) -> Secret | None:
    """Return the value of the authorization header for an LLM.

    Raises ConfigError for a key that no header can hold.
    """
    if api_key is None:
        return None
    key = api_key.reveal().strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            "llm.api_key is empty, or has blanks or characters that no key has; copy the key again"
        )
    return Secret(f"Bearer {key}")


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Kafka's settings; without `bootstrap` the embedded bus is used.

    `client` are librdkafka settings (TLS, SASL, group.protocol).
    """

    bootstrap: str | None = None
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
    """The provider account.

    `base_url` ends before `/chat/completions`; None means that no LLM is configured.
    `context_tokens`: how many tokens the model takes, None if unknown. `headers` are sent with each
    call. `limits` are the provider's for `model`. `wordings` are those of the route.
    """

    base_url: str | None = None
    api_key: Secret | None = None
    model: str | None = None
    timeout_s: float = 600.0
    context_tokens: int | None = None
    headers: dict[str, Secret] = field(default_factory=dict)
    structured: Structured = Structured.JSON_SCHEMA
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


class LogFormat(StrEnum):
    """How the lines of a log are written: for people, or each as a JSON object."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Settings of an agent.

    `slots`: calls in flight at once in one agent. `sweep_slack_s`: how long a task may wait beyond
    its topic's oldest record. `park_probe_s`: how often one call is tried on a route that waits for
    a person. `compact_after_s`: the age of a count from which on it is rolled up. `http`: where it
    shows its health and metrics, None for nowhere. `release`: under which label its attempts are
    counted; agents with different releases have equal settings.
    """

    slots: int = 64
    drain_timeout_s: float = 20.0
    sweep_slack_s: float = 600.0
    park_probe_s: float = 60.0
    compact_after_s: float = 900.0
    http: Address | None = None
    release: str = field(default=VERSION, compare=False)


@dataclass(frozen=True, slots=True)
class OtelConfig:
    """Where traces go, in OTLP over HTTP, and which.

    `endpoint`: the collector's address, without `/v1/traces`; None if nothing is traced. `named`:
    whether a setting named it, and not OpenTelemetry's own variable. `ratio`: the share of tasks
    whose success is traced. `link_template`: where a person reads a trace. `to_provider`: whether
    calls carry a `traceparent`.
    """

    endpoint: str | None = None
    named: bool = False
    headers: dict[str, Secret] = field(default_factory=dict)
    ratio: float = 0.01
    link_template: str | None = None
    to_provider: bool = False

    def link(self, trace_id: str) -> str:
        """Return where a person reads a trace; empty if no setting says it."""
        return (self.link_template or "").replace(TRACE_ID, trace_id)


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """Settings of guards.

    `probe_s`: the time from one look of a guard to the next, and from one prompt to its route to
    the next. A look that has lasted longer ends once none of its tasks runs.
    """

    probe_s: float = 300.0


@dataclass(frozen=True, slots=True)
class InboxConfig:
    """`enabled`: whether agents read the group's inbox.

    `join_batches`: whether its records may add to batches that `load` made. `redrive`: whether a
    dead letter that another tool writes back replays its task. `max_backlog`: unfinished tasks of
    the group from which on no record becomes a task; 0 is never.
    """

    enabled: bool = True
    join_batches: bool = False
    redrive: bool = False
    max_backlog: int = 0


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """What agents do with batches that have been final for long enough; None: nothing.

    `archive`: the folder to which they archive a batch, a URI with a slash at its end. After
    `purge_after_s` they delete the rows of an archived batch.
    """

    archive: str | None = None
    purge_after_s: int | None = None

    @property
    def archive_after_s(self) -> int:
        """How long a batch has been final when it is archived."""
        return 86_400 if self.purge_after_s is None else self.purge_after_s


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens, in the currency's unit."""

    input_per_mtok: float
    output_per_mtok: float

    def cost_micro(self, tokens_in: int, tokens_out: int) -> int:
        """Return the price of these tokens in millionths of the currency's unit."""
        return round(tokens_in * self.input_per_mtok + tokens_out * self.output_per_mtok)

    def least_price_micro(self, input_bytes: int) -> int:
        """Return the estimated price of an input of this size, without the answer's price."""
        return self.cost_micro(input_bytes // BYTES_PER_TOKEN, 0)


@dataclass(frozen=True, slots=True)
class RouteConfig:
    """A provider account for one model.

    `model`: the name that tasks use, by default the route's name. A value of None is inherited from
    `[llm]`. Key, headers and `structured` are inherited only if the address is that of `[llm]`, and
    `context_tokens` only if the model is `llm.model` at that address. `headers` replace those of
    `[llm]`. `fallback`: the routes to which tasks go on after a failure of `fallback_on`, in order.
    `wordings`: texts of its server's refusals, by the class that they mean.
    `limits` also hold for other routes of the same account and model
    (`schemas/settings/account.py`).
    """

    base_url: str | None = None
    api_key: Secret | None = None
    model: str | None = None
    timeout_s: float | None = None
    context_tokens: int | None = None
    headers: dict[str, Secret] | None = None
    structured: Structured | None = None
    limits: QuotaLimits = NO_LIMITS
    fallback: tuple[str, ...] = ()
    fallback_on: tuple[Trigger, ...] = (Trigger.OUTAGE, Trigger.CAPACITY, Trigger.TOO_LONG)
    wordings: dict[str, tuple[str, ...]] = field(default_factory=dict)


class RunIn(StrEnum):
    """Where the handler of a type runs."""

    AGENT = "agent"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class TypeConfig:
    """Settings of one type of task.

    `handler`: `package.module:function`, an async or a plain function. `route` or `model`: those of
    tasks that name no model. `prompt` and `schema`: those of tasks that have none. `retry`
    and `give_up`: names of the handler's exceptions that are retried, and that are not. `delay_s`:
    the least wait before a next attempt. `tiers`: the retry tiers of its tasks, by default all.
    After `soft_limit_s` an attempt is told to end, after `time_limit_s` it is ended. `slots`: most
    attempts at once in one agent. `schedule`: the hours in which the tasks run. `run`: where the
    handler runs; in a process of its own it may use `memory_mb` and run for `time_s`.
    `on_success`, `on_retry` and `on_dead`: functions that run after an attempt has ended.
    `part_tokens`, `overlap_tokens` and `merge_prompt`: how `map-reduce` splits and merges.
    With `strict_answer`, no fence or thoughts are taken off around its answers.
    `whole_input`: whether an answer to a prompt that the server has cut is a failure.
    """

    handler: str | None = None
    run: RunIn = RunIn.AGENT
    memory_mb: int | None = None
    time_s: float | None = None
    route: str | None = None
    max_attempts: int | None = None
    retry: tuple[str, ...] = ()
    give_up: tuple[str, ...] = ()
    delay_s: float = 0.0
    model: str | None = None
    prompt: str | None = None
    schema: dict[str, Any] | None = None
    tiers: tuple[str, ...] = ()
    slots: int | None = None
    schedule: str | None = None
    soft_limit_s: float | None = None
    time_limit_s: float | None = None
    on_success: str | None = None
    on_retry: str | None = None
    on_dead: str | None = None
    part_tokens: int | None = None
    overlap_tokens: int | None = None
    merge_prompt: str | None = None
    strict_answer: bool = False
    whole_input: bool = False

    @property
    def hooks(self) -> dict[HookEvent, str]:
        """The functions that run after an attempt has ended."""
        named = {
            HookEvent.SUCCESS: self.on_success,
            HookEvent.RETRY: self.on_retry,
            HookEvent.DEAD: self.on_dead,
        }
        return {event: path for event, path in named.items() if path is not None}


NO_SETTINGS = TypeConfig()


@dataclass(frozen=True, slots=True)
class Config:
    """All settings; `file` is the configuration file that was read, None if there is none."""

    data_dir: Path = Path("docllm-data")
    kafka: KafkaConfig = KafkaConfig()
    database_url: Secret | None = None
    redis_url: Secret | None = None
    llm: LLMConfig = LLMConfig()
    agent: AgentConfig = AgentConfig()
    otel: OtelConfig = OtelConfig()
    guard: GuardConfig = GuardConfig()
    inbox: InboxConfig = InboxConfig()
    retention: RetentionConfig = RetentionConfig()
    document_roots: tuple[Path, ...] | None = None
    document_allow: tuple[str, ...] = ()
    document_private: tuple[IPv4Network | IPv6Network, ...] = ()
    document_kept_mb: int = 512
    prices: dict[str, Price] = field(default_factory=dict)
    routes: dict[str, RouteConfig] = field(default_factory=dict)
    types: dict[str, TypeConfig] = field(default_factory=dict)
    tenants: dict[str, TenantConfig] = field(default_factory=dict)
    tenant_defaults: TenantDefaults = field(default_factory=TenantDefaults)
    retry_tiers: tuple[str, ...] = DEFAULT_TIERS
    max_attempts: int = 5
    http_token: Secret | None = None
    log_format: LogFormat = LogFormat.TEXT
    file: Path | None = field(default=None, compare=False)

    @property
    def embedded(self) -> bool:
        """Whether ledger and bus are files in `data_dir`."""
        return self.kafka.bootstrap is None

    @property
    def texts_folder(self) -> Path:
        """The folder in which agents of this machine keep the texts of converted documents."""
        return self.data_dir / "texts"

    @property
    def hooked(self) -> Hooked:
        """The events for which types have a hook."""
        return {name: frozenset(of_type.hooks) for name, of_type in self.types.items()}

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

    def max_attempts_of(self, task_type: str) -> int:
        """Return how many attempts a task of this type may have, unless its line says otherwise."""
        own = self.type_settings(task_type).max_attempts
        return self.max_attempts if own is None else own

    def tenant(self, name: str) -> TenantConfig:
        """Return what a tenant may take."""
        defaults = self.tenant_defaults
        return self.tenants.get(name) or TenantConfig(
            weight=defaults.weight, in_flight=defaults.in_flight
        )

    def roots(self) -> tuple[Path, ...]:
        """Return the folders below which documents may be read.

        The default is the current folder on embedded parts, and no folder otherwise.
        """
        if self.document_roots is not None:
            return self.document_roots
        return (Path.cwd(),) if self.embedded else ()

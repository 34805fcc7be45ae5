"""Every setting: its names, its check, what it means, and its default.

`sources.py` reads the values. `python -m tools.reference` makes the page of settings from this
table.
"""

from dataclasses import dataclass

from docllm.schemas.settings import kinds
from docllm.schemas.settings.config import LogFormat, RunIn, Structured, Trigger
from docllm.schemas.settings.headers import headers
from docllm.schemas.settings.quota import ChargeRule
from docllm.schemas.settings.schedule import schedule
from docllm.schemas.settings.schema_file import schema_file
from docllm.schemas.settings.wordings import wordings
from docllm.schemas.version import VERSION

MAX_TOKENS = 1_000_000_000  # the largest context of a model; more is a mistake
CLIENT = "kafka.client."  # the prefix of librdkafka's own settings


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its name in the file and as a flag, its environment variable, and its check.

    `meaning` and `default` are for the page of settings; an empty default means that there is none.
    """

    name: str
    variable: str | None
    check: kinds.CheckValue
    meaning: str
    default: str = ""


@dataclass(frozen=True, slots=True)
class NamedSetting:
    """A setting of a section that a person names, with its meaning and default as above."""

    check: kinds.CheckValue
    meaning: str
    default: str = ""


_REQUESTS = kinds.whole(1, 100_000_000)
_TOKENS = kinds.whole(1, 1_000_000_000_000)
_CALLS = kinds.whole(1, 1_000_000)
# The provider's limits of one account for one model, for `[llm]` and each route.
_LIMITS = {
    "rpm": NamedSetting(
        _REQUESTS, "the provider's limit of requests a minute, kept by all agents together"
    ),
    "tpm": NamedSetting(_TOKENS, "the provider's limit of tokens a minute, prompt and answer"),
    "itpm": NamedSetting(_TOKENS, "the provider's limit of prompt tokens a minute"),
    "otpm": NamedSetting(_TOKENS, "the provider's limit of answer tokens a minute"),
    "rpd": NamedSetting(_REQUESTS, "the provider's limit of requests a day (UTC)"),
    "in_flight": NamedSetting(_CALLS, "most calls at once, of all agents together"),
    "charge": NamedSetting(
        kinds.choice(ChargeRule),
        "what counts toward the token limits: `max_then_refund` for the longest answer until its "
        "length is known, `max_kept` for the longest answer always, `input_then_output` for the "
        "prompt first and the answer as it ends",
        "max_then_refund",
    ),
}
_WEIGHT = kinds.real(0.01, 1000)
_LIMIT_S = kinds.real(0.1, 86_400)

# The sections that a person names, such as `[prices."gpt-4o"]`, and the settings of each section.
_PRICE = kinds.real(0, 1e6)
NAMED_SETTINGS: dict[str, dict[str, NamedSetting]] = {
    "prices": {
        "input_per_mtok": NamedSetting(_PRICE, "price of a million tokens of the prompt", "0"),
        "output_per_mtok": NamedSetting(_PRICE, "price of a million tokens of the answer", "0"),
    },
    "routes": {
        "base_url": NamedSetting(kinds.http_url, "as `llm.base_url`, which is the default"),
        "api_key": NamedSetting(
            kinds.secret, "as `llm.api_key`, which is the default if the route has the same address"
        ),
        "model": NamedSetting(
            kinds.text, "model that the route calls; by default the route's name"
        ),
        "timeout_s": NamedSetting(
            kinds.real(0.1, 86_400), "as `llm.timeout_s`, which is the default"
        ),
        "context_tokens": NamedSetting(
            kinds.whole(1, MAX_TOKENS),
            "how many tokens the model takes; `llm.context_tokens` holds for `llm.model` only",
        ),
        "headers": NamedSetting(
            headers,
            "as `llm.headers`, which is the default if the route has the same address; a table of "
            "the route's own replaces it",
        ),
        "structured": NamedSetting(
            kinds.choice(Structured),
            "as `llm.structured`, which is the default if the route has the same address",
        ),
        "fallback": NamedSetting(
            kinds.names,
            "routes to which tasks go on, in this order, when this one cannot answer them; each is "
            "followed by its own `fallback`",
        ),
        "fallback_on": NamedSetting(
            kinds.choices(Trigger),
            "failures after which tasks go on to the fallback: `OUTAGE` (the route is stopped, or "
            "parked for its key or "
            "model), `CAPACITY`, `TOO_LONG`, `FILTERED`, `MONEY`",
            "OUTAGE, CAPACITY, TOO_LONG",
        ),
        "wordings": NamedSetting(
            wordings,
            "what refusals of this server mean: for a class, `TOO_LONG`, `FILTERED`, `RATE`, "
            "`CAPACITY`, `MONEY` or `AUTH`, a list of texts and `/expressions/`",
        ),
        **_LIMITS,
    },
    "tenants": {
        "weight": NamedSetting(
            _WEIGHT, "the tenant's part beside others that wait too; 2 is twice as much as 1", "1"
        ),
        "in_flight": NamedSetting(
            _CALLS, "most calls at once of this tenant, of all agents together"
        ),
    },
    "types": {
        "handler": NamedSetting(
            kinds.function,
            "`package.module:function`, a function of yours that runs the tasks",
        ),
        "run": NamedSetting(
            kinds.choice(RunIn),
            "where the handler runs: in the `agent`, or in a `process` of its own, whose end costs "
            "the agent nothing",
            "agent",
        ),
        "memory_mb": NamedSetting(
            kinds.whole(32, 1 << 20),
            "MiB of memory from which on a handler's process is ended, as a failure that counts",
        ),
        "time_s": NamedSetting(
            _LIMIT_S,
            "seconds after which a handler's process is ended, as a failure that counts",
        ),
        "route": NamedSetting(kinds.text, "route of the tasks that name no model", "default"),
        "max_attempts": NamedSetting(
            kinds.whole(1, 100), "as `retry.max_attempts`, which is the default"
        ),
        "retry": NamedSetting(
            kinds.names, "names of the handler's exceptions that are tried again"
        ),
        "give_up": NamedSetting(
            kinds.names, "names of the handler's exceptions that make the task dead at once"
        ),
        "delay_s": NamedSetting(
            kinds.real(0, 86_400), "least wait before a next attempt, in seconds", "0"
        ),
        "model": NamedSetting(
            kinds.text, "model of the tasks that name none; a type has a `route` or a `model`"
        ),
        "prompt": NamedSetting(
            kinds.prompt,
            "prompt of the tasks that have none, with `{document}` where their input belongs",
        ),
        "schema": NamedSetting(
            schema_file,
            "file with the JSON Schema of the tasks that have none; their answers are exported as "
            "JSON",
        ),
        "tiers": NamedSetting(
            kinds.tiers, "those of `retry.tiers` in which its tasks wait for a next attempt", "all"
        ),
        "slots": NamedSetting(
            kinds.whole(1, 100_000), "most attempts of the type that run at once in one agent"
        ),
        "schedule": NamedSetting(
            schedule,
            "hours of the day in which its tasks run, such as `22:00-06:00 UTC`; attempts that run "
            "at their end go on",
        ),
        "soft_limit_s": NamedSetting(
            _LIMIT_S,
            "seconds after which the next call in a handler raises `SoftLimitError`, once, so that "
            "it can end with what it has",
        ),
        "time_limit_s": NamedSetting(
            _LIMIT_S, "seconds after which an attempt is ended, as a failure that counts"
        ),
        "on_success": NamedSetting(
            kinds.function,
            "`package.module:function` of yours that runs after a task has succeeded",
        ),
        "on_retry": NamedSetting(
            kinds.function, "the same, after a failed attempt that will be retried"
        ),
        "on_dead": NamedSetting(
            kinds.function, "the same, after a task is dead or cancelled, such as to undo its work"
        ),
        "part_tokens": NamedSetting(
            kinds.whole(200, MAX_TOKENS),
            "most tokens of a part, where `map-reduce` splits a document; by default as many as "
            "the model takes",
        ),
        "overlap_tokens": NamedSetting(
            kinds.whole(0, 100_000),
            "how many tokens a part has in common with the one before it",
            "200",
        ),
        "strict_answer": NamedSetting(
            kinds.truth,
            "whether an answer is taken as it is: no fence around it and no thoughts before it are "
            "taken off, before a schema is judged too",
            "false",
        ),
        "merge_prompt": NamedSetting(
            kinds.text,
            "prompt that merges the answers for parts: `{answers}` stands for them, `{prompt}` for "
            "the task's own prompt",
        ),
        "whole_input": NamedSetting(
            kinds.truth,
            "`true`: a task whose prompt the server has cut is dead as `INPUT_CUT`; otherwise its "
            "result has `truncated_input`",
            "false",
        ),
    },
}


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            "data_dir",
            "DOCLLM_DATA_DIR",
            kinds.path,
            "folder of the embedded parts (ledger, bus, locks), on a local disk; created with "
            "mode 0700",
            "docllm-data",
        ),
        Setting(
            "kafka.bootstrap",
            "DOCLLM_KAFKA_BOOTSTRAP",
            kinds.text,
            "brokers of Kafka, `HOST:PORT,...`; without it docllm uses the embedded bus",
        ),
        Setting(
            "database.url",
            "DOCLLM_DATABASE_URL",
            kinds.database_url,
            "`mysql://USER:PASSWORD@HOST:3306/DATABASE`, also for MariaDB; required with Kafka",
        ),
        Setting(
            "redis.url",
            "DOCLLM_REDIS_URL",
            kinds.redis_url,
            "`redis://` or `rediss://`; optional, lets agents share which routes have stopped",
        ),
        Setting(
            "llm.base_url",
            "DOCLLM_LLM_BASE_URL",
            kinds.http_url,
            "address of an OpenAI-compatible server, up to but not including `/chat/completions`",
        ),
        Setting(
            "llm.api_key",
            "DOCLLM_LLM_API_KEY",
            kinds.secret,
            "key for that address; never shown",
        ),
        Setting(
            "llm.model",
            "DOCLLM_LLM_MODEL",
            kinds.text,
            "model of tasks that name none",
        ),
        Setting(
            "llm.timeout_s",
            None,
            kinds.real(0.1, 86_400),
            "limit of one whole call, in seconds",
            "600",
        ),
        Setting(
            "llm.context_tokens",
            None,
            kinds.whole(1, MAX_TOKENS),
            "how many tokens the model takes",
        ),
        Setting(
            "llm.headers",
            None,
            headers,
            'table of headers for each call to that address, such as `{ "api-key" = "..." }`; '
            "their values are never shown",
        ),
        Setting(
            "llm.structured",
            None,
            kinds.choice(Structured),
            "form in which the server takes a task's schema: `json_schema`, `json_object`, or "
            "`none` for a server that takes none",
            "json_schema",
        ),
        *(
            Setting(f"llm.{name}", None, limit.check, limit.meaning, limit.default)
            for name, limit in _LIMITS.items()
        ),
        Setting(
            "agent.slots",
            "DOCLLM_SLOTS",
            kinds.whole(1, 100_000),
            "most attempts that run at once in one agent",
            "64",
        ),
        Setting(
            "agent.drain_timeout_s",
            None,
            kinds.real(0, 86_400),
            "time that running calls get when the agent is told to stop, in seconds",
            "20",
        ),
        Setting(
            "agent.sweep_slack_s",
            None,
            kinds.real(0, 86_400),
            "the sweep publishes a task again when it has waited this much longer than the "
            "oldest record of its topics, in seconds",
            "600",
        ),
        Setting(
            "agent.park_probe_s",
            None,
            kinds.real(1, 86_400),
            "time between probes (single calls) on a route that waits for a person, in seconds",
            "60",
        ),
        Setting(
            "agent.compact_after_s",
            None,
            kinds.real(1, 86_400),
            "age at which counts are moved into sums, in seconds; guards and `status` look back "
            "ten minutes, and a smaller value shortens that",
            "900",
        ),
        Setting(
            "agent.http",
            "DOCLLM_AGENT_HTTP",
            kinds.address,
            "address on which an agent shows `/metrics`, `/livez` and `/readyz`, such as "
            "`127.0.0.1:9464`; with `--processes`, each further one takes the next port",
        ),
        Setting(
            "agent.release",
            "DOCLLM_AGENT_RELEASE",
            kinds.release,
            "label under which an agent's attempts are counted, so that two releases can be "
            "[compared](../how-to/upgrade.md#compare-two-releases): 1 to 64 letters, digits, dots, "
            "dashes, underscores and plus signs; by default the version of docllm",
            VERSION,
        ),
        Setting(
            "http.token",
            "DOCLLM_HTTP_TOKEN",
            kinds.secret,
            "what readers of metrics send as `Authorization: Bearer TOKEN`; needed on addresses "
            "that other machines reach; never shown",
        ),
        Setting(
            "log.format",
            "DOCLLM_LOG_FORMAT",
            kinds.choice(LogFormat),
            "`json` makes each line of the log an object, for programs that gather logs",
            "text",
        ),
        Setting(
            "otel.endpoint",
            None,
            kinds.http_url,
            "address of an OpenTelemetry collector that takes OTLP over HTTP, such as "
            "`http://collector:4318`; without it, `OTEL_EXPORTER_OTLP_ENDPOINT` names one",
        ),
        Setting(
            "otel.headers",
            None,
            headers,
            "table of headers for the collector, as `llm.headers`, in addition to those of "
            "`OTEL_EXPORTER_OTLP_HEADERS`; their values are never shown",
        ),
        Setting(
            "otel.ratio",
            None,
            kinds.real(0, 1),
            "share of tasks whose success is traced; failed attempts always are",
            "0.01",
        ),
        Setting(
            "otel.link_template",
            None,
            kinds.trace_link,
            "address at which a person reads a trace, in which `{trace_id}` stands for its id; "
            "`dead show` shows it",
        ),
        Setting(
            "otel.to_provider",
            None,
            kinds.truth,
            "whether calls of the provider carry a `traceparent` header",
            "false",
        ),
        Setting(
            "guard.probe_s",
            None,
            kinds.real(1, 86_400),
            "time between two looks of a guard, each of which tries some of its tasks, in seconds",
            "300",
        ),
        Setting(
            "inbox.enabled",
            None,
            kinds.truth,
            "whether agents make tasks of the lines that your own producers write to "
            "`<group>.inbox`",
            "true",
        ),
        Setting(
            "inbox.join_batches",
            None,
            kinds.truth,
            "whether records of the inbox may add tasks to batches that `load` made",
            "false",
        ),
        Setting(
            "inbox.redrive",
            None,
            kinds.truth,
            "whether a dead letter that another tool writes back, to the inbox or to the topic it "
            "came from, replays its task",
            "false",
        ),
        Setting(
            "inbox.max_backlog",
            None,
            kinds.whole(0, 1_000_000_000),
            "unfinished tasks of the group from which on agents make no task of an inbox record; "
            "the records wait on Kafka; 0 is never",
            "0",
        ),
        Setting(
            "retention.archive",
            "DOCLLM_RETENTION_ARCHIVE",
            kinds.folder,
            "folder or `s3://`, `gs://` or `az://` prefix to which an agent archives batches that "
            "have not changed for the time of `retention.purge`, or for a day",
        ),
        Setting(
            "retention.purge",
            None,
            kinds.seconds,
            "time from the last change of a batch after which an agent archives it and deletes its "
            "rows, such as `30d`; by default agents delete nothing",
        ),
        Setting(
            "tenant_defaults.weight",
            None,
            _WEIGHT,
            "as `tenants.NAME.weight`, for tenants without a section",
            "1",
        ),
        Setting(
            "tenant_defaults.in_flight",
            None,
            _CALLS,
            "as `tenants.NAME.in_flight`, for each tenant without a section",
        ),
        Setting(
            "tenant_defaults.overflow",
            None,
            kinds.whole(0, 1_000_000_000),
            "unfinished tasks of a tenant from which on its next ones go to the bulk lane; 0 is "
            "never",
            "10000",
        ),
        Setting(
            "documents.roots",
            "DOCLLM_DOCUMENT_ROOTS",
            kinds.paths,
            "folders from which agents may read documents; by default the current folder on "
            "embedded parts, otherwise none",
        ),
        Setting(
            "documents.allow",
            "DOCLLM_DOCUMENT_ALLOW",
            kinds.uri_prefixes,
            "URI prefixes below which agents may read documents that are not files, and write "
            "results; each ends with `/`, such as `s3://bucket/reports/`",
        ),
        Setting(
            "documents.private",
            "DOCLLM_DOCUMENT_PRIVATE",
            kinds.networks,
            "networks of your own, such as `10.0.0.0/8`, in which the servers of `https://` "
            "documents may be; otherwise documents come from public addresses only",
        ),
        Setting(
            "documents.kept_mb",
            "DOCLLM_DOCUMENT_KEPT_MB",
            kinds.whole(0, 1_000_000),
            "MiB in the data folder for the cached texts of converted documents, so that further "
            "tasks on a document need no conversion; 0 turns the cache off",
            "512",
        ),
        Setting(
            "retry.tiers",
            "DOCLLM_RETRY_TIERS",
            kinds.tiers,
            "delays of the retry topics; the longest also serves guards and closed routes",
            "30s,5m,1h",
        ),
        Setting(
            "retry.max_attempts",
            "DOCLLM_MAX_ATTEMPTS",
            kinds.whole(1, 100),
            "most counted attempts of a task, unless its line or its type sets another number",
            "5",
        ),
    )
}

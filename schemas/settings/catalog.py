"""Every setting: its names, its check, what it means, and its default.

`sources.py` reads the values. `python -m tools.reference` makes the page of settings from this
table.
"""

from dataclasses import dataclass

from docllm.schemas.settings import kinds
from docllm.schemas.settings.config import LogFormat, RunIn, Structured, Trigger
from docllm.schemas.settings.headers import headers
from docllm.schemas.settings.kinds import schema_file
from docllm.schemas.settings.quota import ChargeRule
from docllm.schemas.settings.schedule import schedule
from docllm.schemas.settings.wordings import wordings
from docllm.schemas.version import VERSION

MAX_TOKENS = 1_000_000_000  # the largest context of a model; more is a mistake
CLIENT = "kafka.client."  # the prefix of librdkafka's own settings


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its check, and the environment variable that sets it too, if there is one.

    `meaning` and `default` are for the page of settings; an empty default means that there is none.
    """

    check: kinds.CheckValue
    meaning: str
    default: str = ""
    variable: str | None = None


_REQUESTS = kinds.whole(1, 100_000_000)
_TOKENS = kinds.whole(1, 1_000_000_000_000)
_CALLS = kinds.whole(1, 1_000_000)
# The provider's limits of one account for one model, for `[llm]` and each route.
_LIMITS = {
    "rpm": Setting(
        _REQUESTS, "the provider's limit of requests a minute, kept by all agents together"
    ),
    "tpm": Setting(_TOKENS, "the provider's limit of tokens a minute, prompt and answer"),
    "itpm": Setting(_TOKENS, "the provider's limit of prompt tokens a minute"),
    "otpm": Setting(_TOKENS, "the provider's limit of answer tokens a minute"),
    "rpd": Setting(_REQUESTS, "the provider's limit of requests a day (UTC)"),
    "in_flight": Setting(_CALLS, "most calls at once, of all agents together"),
    "charge": Setting(
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
NAMED_SETTINGS: dict[str, dict[str, Setting]] = {
    "prices": {
        "input_per_mtok": Setting(_PRICE, "price of a million tokens of the prompt", "0"),
        "output_per_mtok": Setting(_PRICE, "price of a million tokens of the answer", "0"),
    },
    "routes": {
        "base_url": Setting(kinds.http_url, "as `llm.base_url`, which is the default"),
        "api_key": Setting(
            kinds.secret, "as `llm.api_key`, which is the default if the route has the same address"
        ),
        "model": Setting(kinds.text, "model that the route calls; by default the route's name"),
        "timeout_s": Setting(kinds.real(0.1, 86_400), "as `llm.timeout_s`, which is the default"),
        "context_tokens": Setting(
            kinds.whole(1, MAX_TOKENS),
            "how many tokens the model takes; `llm.context_tokens` holds for `llm.model` only",
        ),
        "headers": Setting(
            headers,
            "as `llm.headers`, which is the default if the route has the same address; a table of "
            "the route's own replaces it",
        ),
        "structured": Setting(
            kinds.choice(Structured),
            "as `llm.structured`, which is the default if the route has the same address",
        ),
        "fallback": Setting(
            kinds.names,
            "routes to which tasks go on, in this order, when this one cannot answer them; each is "
            "followed by its own `fallback`",
        ),
        "fallback_on": Setting(
            kinds.choices(Trigger),
            "failures after which tasks go on to the fallback: `OUTAGE` (the route is stopped, or "
            "parked for its key or "
            "model), `CAPACITY`, `TOO_LONG`, `FILTERED`, `MONEY`",
            "OUTAGE, CAPACITY, TOO_LONG",
        ),
        "wordings": Setting(
            wordings,
            "what refusals of this server mean: for a class, `TOO_LONG`, `FILTERED`, `RATE`, "
            "`CAPACITY`, `MONEY` or `AUTH`, a list of texts and `/expressions/`",
        ),
        **_LIMITS,
    },
    "tenants": {
        "weight": Setting(
            _WEIGHT, "the tenant's part beside others that wait too; 2 is twice as much as 1", "1"
        ),
        "in_flight": Setting(_CALLS, "most calls at once of this tenant, of all agents together"),
    },
    "types": {
        "handler": Setting(
            kinds.function,
            "`package.module:function`, a function of yours that runs the tasks",
        ),
        "run": Setting(
            kinds.choice(RunIn),
            "where the handler runs: in the `agent`, or in a `process` of its own, whose end costs "
            "the agent nothing",
            "agent",
        ),
        "memory_mb": Setting(
            kinds.whole(32, 1 << 20),
            "MiB of memory from which on a handler's process is ended, as a failure that counts",
        ),
        "time_s": Setting(
            _LIMIT_S,
            "seconds after which a handler's process is ended, as a failure that counts",
        ),
        "route": Setting(kinds.text, "route of the tasks that name no model", "default"),
        "max_attempts": Setting(
            kinds.whole(1, 100), "as `retry.max_attempts`, which is the default"
        ),
        "retry": Setting(kinds.names, "names of the handler's exceptions that are tried again"),
        "give_up": Setting(
            kinds.names, "names of the handler's exceptions that make the task dead at once"
        ),
        "delay_s": Setting(
            kinds.real(0, 86_400), "least wait before a next attempt, in seconds", "0"
        ),
        "model": Setting(
            kinds.text, "model of the tasks that name none; a type has a `route` or a `model`"
        ),
        "prompt": Setting(
            kinds.prompt,
            "prompt of the tasks that have none, with `{document}` where their input belongs",
        ),
        "schema": Setting(
            schema_file,
            "file with the JSON Schema of the tasks that have none; their answers are exported as "
            "JSON",
        ),
        "tiers": Setting(
            kinds.tiers, "those of `retry.tiers` in which its tasks wait for a next attempt", "all"
        ),
        "slots": Setting(
            kinds.whole(1, 100_000), "most attempts of the type that run at once in one agent"
        ),
        "schedule": Setting(
            schedule,
            "hours of the day in which its tasks run, such as `22:00-06:00 UTC`; attempts that run "
            "at their end go on",
        ),
        "soft_limit_s": Setting(
            _LIMIT_S,
            "seconds after which the next call in a handler raises `SoftLimitError`, once, so that "
            "it can end with what it has",
        ),
        "time_limit_s": Setting(
            _LIMIT_S, "seconds after which an attempt is ended, as a failure that counts"
        ),
        "on_success": Setting(
            kinds.function,
            "`package.module:function` of yours that runs after a task has succeeded",
        ),
        "on_retry": Setting(
            kinds.function, "the same, after a failed attempt that will be retried"
        ),
        "on_dead": Setting(
            kinds.function, "the same, after a task is dead or cancelled, such as to undo its work"
        ),
        "part_tokens": Setting(
            kinds.whole(200, MAX_TOKENS),
            "most tokens of a part, where `map-reduce` splits a document; by default as many as "
            "the model takes",
        ),
        "overlap_tokens": Setting(
            kinds.whole(0, 100_000),
            "how many tokens a part has in common with the one before it",
            "200",
        ),
        "strict_answer": Setting(
            kinds.truth,
            "whether an answer is taken as it is: no fence around it and no thoughts before it are "
            "taken off, before a schema is judged too",
            "false",
        ),
        "merge_prompt": Setting(
            kinds.text,
            "prompt that merges the answers for parts: `{answers}` stands for them, `{prompt}` for "
            "the task's own prompt",
        ),
        "whole_input": Setting(
            kinds.truth,
            "`true`: a task whose prompt the server has cut is dead as `INPUT_CUT`; otherwise its "
            "result has `truncated_input`",
            "false",
        ),
    },
}


SETTINGS: dict[str, Setting] = {
    "data_dir": Setting(
        kinds.path,
        "folder of the embedded parts (ledger, bus, locks), on a local disk; created with "
        "mode 0700",
        "docllm-data",
        variable="DOCLLM_DATA_DIR",
    ),
    "kafka.bootstrap": Setting(
        kinds.text,
        "brokers of Kafka, `HOST:PORT,...`; without it docllm uses the embedded bus",
        variable="DOCLLM_KAFKA_BOOTSTRAP",
    ),
    "database.url": Setting(
        kinds.database_url,
        "`mysql://USER:PASSWORD@HOST:3306/DATABASE`, also for MariaDB; required with Kafka",
        variable="DOCLLM_DATABASE_URL",
    ),
    "redis.url": Setting(
        kinds.redis_url,
        "`redis://` or `rediss://`; optional, lets agents share which routes have stopped",
        variable="DOCLLM_REDIS_URL",
    ),
    "llm.base_url": Setting(
        kinds.http_url,
        "address of an OpenAI-compatible server, up to but not including `/chat/completions`",
        variable="DOCLLM_LLM_BASE_URL",
    ),
    "llm.api_key": Setting(
        kinds.secret, "key for that address; never shown", variable="DOCLLM_LLM_API_KEY"
    ),
    "llm.model": Setting(kinds.text, "model of tasks that name none", variable="DOCLLM_LLM_MODEL"),
    "llm.timeout_s": Setting(kinds.real(0.1, 86_400), "limit of one whole call, in seconds", "600"),
    "llm.context_tokens": Setting(kinds.whole(1, MAX_TOKENS), "how many tokens the model takes"),
    "llm.headers": Setting(
        headers,
        'table of headers for each call to that address, such as `{ "api-key" = "..." }`; '
        "their values are never shown",
    ),
    "llm.structured": Setting(
        kinds.choice(Structured),
        "form in which the server takes a task's schema: `json_schema`, `json_object`, or "
        "`none` for a server that takes none",
        "json_schema",
    ),
    **{f"llm.{name}": limit for name, limit in _LIMITS.items()},
    "agent.slots": Setting(
        kinds.whole(1, 100_000),
        "most attempts that run at once in one agent",
        "64",
        variable="DOCLLM_SLOTS",
    ),
    "agent.drain_timeout_s": Setting(
        kinds.real(0, 86_400),
        "time that running calls get when the agent is told to stop, in seconds",
        "20",
    ),
    "agent.sweep_slack_s": Setting(
        kinds.real(0, 86_400),
        "the sweep publishes a task again when it has waited this much longer than the "
        "oldest record of its topics, in seconds",
        "600",
    ),
    "agent.park_probe_s": Setting(
        kinds.real(1, 86_400),
        "time between probes (single calls) on a route that waits for a person, in seconds",
        "60",
    ),
    "agent.compact_after_s": Setting(
        kinds.real(1, 86_400),
        "age at which counts are moved into sums, in seconds; guards and `status` look back "
        "ten minutes, and a smaller value shortens that",
        "900",
    ),
    "agent.http": Setting(
        kinds.address,
        "address on which an agent shows `/metrics`, `/livez` and `/readyz`, such as "
        "`127.0.0.1:9464`; with `--processes`, each further one takes the next port",
        variable="DOCLLM_AGENT_HTTP",
    ),
    "agent.release": Setting(
        kinds.release,
        "label under which an agent's attempts are counted, so that two releases can be "
        "[compared](../how-to/upgrade.md#compare-two-releases): 1 to 64 letters, digits, dots, "
        "dashes, underscores and plus signs; by default the version of docllm",
        VERSION,
        variable="DOCLLM_AGENT_RELEASE",
    ),
    "http.token": Setting(
        kinds.secret,
        "what readers of metrics send as `Authorization: Bearer TOKEN`; needed on addresses "
        "that other machines reach; never shown",
        variable="DOCLLM_HTTP_TOKEN",
    ),
    "log.format": Setting(
        kinds.choice(LogFormat),
        "`json` makes each line of the log an object, for programs that gather logs",
        "text",
        variable="DOCLLM_LOG_FORMAT",
    ),
    "otel.endpoint": Setting(
        kinds.http_url,
        "address of an OpenTelemetry collector that takes OTLP over HTTP, such as "
        "`http://collector:4318`; without it, `OTEL_EXPORTER_OTLP_ENDPOINT` names one",
    ),
    "otel.headers": Setting(
        headers,
        "table of headers for the collector, as `llm.headers`, in addition to those of "
        "`OTEL_EXPORTER_OTLP_HEADERS`; their values are never shown",
    ),
    "otel.ratio": Setting(
        kinds.real(0, 1),
        "share of tasks whose success is traced; failed attempts always are",
        "0.01",
    ),
    "otel.link_template": Setting(
        kinds.trace_link,
        "address at which a person reads a trace, in which `{trace_id}` stands for its id; "
        "`show` shows it",
    ),
    "otel.to_provider": Setting(
        kinds.truth, "whether calls of the provider carry a `traceparent` header", "false"
    ),
    "guard.probe_s": Setting(
        kinds.real(1, 86_400),
        "time between two looks of a guard, each of which tries some of its tasks, in seconds",
        "300",
    ),
    "inbox.enabled": Setting(
        kinds.truth,
        "whether agents make tasks of the lines that your own producers write to `<group>.inbox`",
        "true",
    ),
    "inbox.join_batches": Setting(
        kinds.truth,
        "whether records of the inbox may add tasks to batches that `load` made",
        "false",
    ),
    "inbox.redrive": Setting(
        kinds.truth,
        "whether a dead letter that another tool writes back, to the inbox or to the topic it "
        "came from, replays its task",
        "false",
    ),
    "inbox.max_backlog": Setting(
        kinds.whole(0, 1_000_000_000),
        "unfinished tasks of the group from which on agents make no task of an inbox record; "
        "the records wait on Kafka; 0 is never",
        "0",
    ),
    "retention.archive": Setting(
        kinds.folder,
        "folder or `s3://`, `gs://` or `az://` prefix to which an agent archives batches that "
        "have not changed for the time of `retention.purge`, or for a day",
        variable="DOCLLM_RETENTION_ARCHIVE",
    ),
    "retention.purge": Setting(
        kinds.seconds,
        "time from the last change of a batch after which an agent archives it and deletes its "
        "rows, such as `30d`; by default agents delete nothing",
    ),
    "tenant_defaults.weight": Setting(
        _WEIGHT, "as `tenants.NAME.weight`, for tenants without a section", "1"
    ),
    "tenant_defaults.in_flight": Setting(
        _CALLS, "as `tenants.NAME.in_flight`, for each tenant without a section"
    ),
    "tenant_defaults.overflow": Setting(
        kinds.whole(0, 1_000_000_000),
        "unfinished tasks of a tenant from which on its next ones go to the bulk lane; 0 is never",
        "10000",
    ),
    "documents.roots": Setting(
        kinds.paths,
        "folders from which agents may read documents; by default the current folder on "
        "embedded parts, otherwise none",
        variable="DOCLLM_DOCUMENT_ROOTS",
    ),
    "documents.allow": Setting(
        kinds.uri_prefixes,
        "URI prefixes below which agents may read documents that are not files, and write "
        "results; each ends with `/`, such as `s3://bucket/reports/`",
        variable="DOCLLM_DOCUMENT_ALLOW",
    ),
    "documents.private": Setting(
        kinds.networks,
        "networks of your own, such as `10.0.0.0/8`, in which the servers of `https://` "
        "documents may be; otherwise documents come from public addresses only",
        variable="DOCLLM_DOCUMENT_PRIVATE",
    ),
    "documents.kept_mb": Setting(
        kinds.whole(0, 1_000_000),
        "MiB in the data folder for the cached texts of converted documents, so that further "
        "tasks on a document need no conversion; 0 turns the cache off",
        "512",
        variable="DOCLLM_DOCUMENT_KEPT_MB",
    ),
    "retry.tiers": Setting(
        kinds.tiers,
        "delays of the retry topics; the longest also serves guards and closed routes",
        "30s,5m,1h",
        variable="DOCLLM_RETRY_TIERS",
    ),
    "retry.max_attempts": Setting(
        kinds.whole(1, 100),
        "most counted attempts of a task, unless its line or its type sets another number",
        "5",
        variable="DOCLLM_MAX_ATTEMPTS",
    ),
}

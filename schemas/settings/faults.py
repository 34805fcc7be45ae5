"""Finds settings that are valid by themselves but contradict each other.

No message holds a value.
"""

from collections.abc import Iterator

from docllm.schemas.settings.account import account, quota_key
from docllm.schemas.settings.config import DEFAULT_ROUTE, Config, TypeConfig
from docllm.schemas.settings.headers import AUTHORIZATION
from docllm.schemas.task.route_state import MAX_ROUTE_CHARS
from docllm.schemas.task.task_types import MAP_REDUCE, OPENAI

MAP_REDUCE_PATH = "docllm.agent.handlers:map_reduce"


def type_faults(config: Config) -> Iterator[str]:
    """Yield the faults of all types, with the fix of each."""
    for name, settings in sorted(config.types.items()):
        for fault in _faults(name, settings, config):
            yield f"types.{name}.{fault}"


def _faults(name: str, settings: TypeConfig, config: Config) -> Iterator[str]:
    if settings.model is not None and settings.route is not None:
        yield "model and route are both set, but a route has its own model; remove one of them"
    unknown = [tier for tier in settings.tiers if tier not in config.retry_tiers]
    if unknown:
        tier_names = ", ".join(config.retry_tiers)
        yield f"tiers names a tier that retry.tiers does not have; it has {tier_names}"
    soft_s, hard_s = settings.soft_limit_s, settings.time_limit_s
    if soft_s is not None and hard_s is not None and soft_s >= hard_s:
        yield "soft_limit_s must be less than time_limit_s, so that the handler has time to end"
    yield from _faults_of_process(settings)
    yield from _faults_of_parts(name, settings)
    if name == OPENAI:
        for part in ("model", "prompt", "schema"):
            if getattr(settings, part) is not None:
                yield f"{part} has no effect: lines of the OpenAI format have their own; remove it"
        if settings.strict_answer:
            yield "strict_answer has no effect: answers of the OpenAI format are kept; remove it"


def _faults_of_parts(name: str, settings: TypeConfig) -> Iterator[str]:
    if name == MAP_REDUCE and settings.handler is None and settings.soft_limit_s is not None:
        yield "soft_limit_s would end an attempt without an answer; set time_limit_s"
    if name != MAP_REDUCE and settings.handler is None:
        for part in ("part_tokens", "overlap_tokens", "merge_prompt"):
            if getattr(settings, part) is not None:
                yield (
                    f"{part} has no effect without a handler that splits documents; "
                    f'set handler = "{MAP_REDUCE_PATH}", or remove it'
                )
    if settings.merge_prompt is not None and "{answers}" not in settings.merge_prompt:
        yield "merge_prompt has no {answers}; write it where the answers for the parts belong"


def _faults_of_process(settings: TypeConfig) -> Iterator[str]:
    if settings.run == "process":
        if settings.handler == MAP_REDUCE_PATH:
            yield f"run must be agent for {MAP_REDUCE_PATH}, which runs nothing of yours; remove it"
        if settings.handler is None:
            yield "run has no effect without a handler; name one, or remove run"
        return
    for part in ("memory_mb", "time_s"):
        if getattr(settings, part) is not None:
            yield f'{part} limits a process; set run = "process", or remove it'


def contradictions(config: Config) -> Iterator[str]:
    """Yield a fault unless ledger and bus are both embedded or both servers.

    In a mixed pair, one half would not survive the other half's failures.
    """
    url = config.database_url
    mysql = url is not None and not url.reveal().startswith("sqlite")
    if mysql and config.embedded:
        yield (
            "a MySQL ledger needs Kafka: set DOCLLM_KAFKA_BOOTSTRAP=HOST:9092, "
            "or remove database.url for embedded parts"
        )
    if not mysql and not config.embedded:
        yield (
            "Kafka needs a MySQL ledger: set "
            "DOCLLM_DATABASE_URL=mysql://USER:PASSWORD@HOST:3306/DATABASE"
        )


def route_faults(config: Config) -> Iterator[str]:
    """Yield the faults of route names, and of types whose route does not exist.

    The ledger stores a route's name, so the name's form is limited.
    """
    for name in config.routes:
        if len(name) > MAX_ROUTE_CHARS or not name.isprintable() or name != name.strip():
            yield (
                f"routes.{name[:MAX_ROUTE_CHARS]!r}: use at most {MAX_ROUTE_CHARS} printable "
                "characters for a route's name, no blank at its ends"
            )
    routes = sorted({DEFAULT_ROUTE, *config.routes})
    for name, task_type in config.types.items():
        if task_type.route not in {None, *routes}:
            yield (
                f"types.{name}.route names no route; known are: {', '.join(routes)}; add its "
                "section [routes.NAME], or remove it"
            )


def retention_faults(config: Config) -> Iterator[str]:
    """Yield a fault if data would be deleted without an archive."""
    if config.retention.purge_after_s is not None and config.retention.archive is None:
        yield (
            "retention.purge deletes only what is archived; set retention.archive to a folder, or "
            "to s3://BUCKET/FOLDER/"
        )


def account_faults(config: Config) -> Iterator[str]:
    """Yield the faults of accounts that have a key and the header in which it would be sent."""
    for name in sorted({DEFAULT_ROUTE, *config.routes}):
        llm = account(config, name)
        doubled = any(header.lower() == AUTHORIZATION.lower() for header in llm.headers)
        if llm.api_key is not None and doubled:
            yield (
                f"{_section(config, name)} has a key and the header {AUTHORIZATION}, in which the "
                "key is sent; keep one of them: remove api_key (DOCLLM_LLM_API_KEY, "
                f"OPENAI_API_KEY), or remove {AUTHORIZATION} from headers"
            )


def quota_faults(config: Config) -> Iterator[str]:
    """Yield the faults of routes that the provider counts together, with different limits."""
    first: dict[str, str] = {}
    for name in (DEFAULT_ROUTE, *sorted(config.routes)):
        llm = account(config, name)
        if not llm.limits.given:
            continue
        other = first.setdefault(quota_key(llm), name)
        if llm.limits != account(config, other).limits:
            place, other = (_section(config, route) for route in (name, other))
            yield (
                f"{place} and {other} have the same address, key and model, but other limits; "
                "the provider counts their calls together: set the limits in one of them"
            )


def _section(config: Config, route: str) -> str:
    """Return the section of the settings in which a route is set."""
    return f"routes.{route}" if route in config.routes else "llm"

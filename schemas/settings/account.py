"""The route of a task, and the account of a route: its own settings, or those of `[llm]`. Pure."""

import hashlib

from docllm.schemas.settings.config import (
    DEFAULT_ROUTE,
    Config,
    LLMConfig,
    RouteConfig,
    Structured,
    TypeConfig,
)
from docllm.schemas.settings.quota import NamedLimit, QuotaLimits

_KEY_CHARS = 16


def configured_routes(config: Config) -> tuple[str, ...]:
    """Return all configured routes by name, the default one last."""
    return (*sorted(config.routes.keys() - {DEFAULT_ROUTE}), DEFAULT_ROUTE)


def configured_route(
    config: Config, type_name: str, model: str | None, route: str | None
) -> str | None:
    """Return the configured route of a task: the route it names, or its model's, or its type's.

    Returns None if that route or model is not configured.
    """
    if route is not None:
        return route if route in configured_routes(config) else None
    if model is None:
        task_type = config.type_settings(type_name)
        if task_type.model is None:
            return task_type.route or DEFAULT_ROUTE
        model = task_type.model
    names = configured_routes(config)
    return next((name for name in names if account(config, name).model == model), None)


def account(config: Config, route: str) -> LLMConfig:
    """Return the LLM settings of a route: its own settings, or else those of `[llm]`.

    `route` is a configured route or the default one.
    """
    own, llm = config.routes.get(route, RouteConfig()), config.llm
    base_url = own.base_url or llm.base_url
    model = own.model or (llm.model if route == DEFAULT_ROUTE else route)
    same_server = base_url == llm.base_url
    return LLMConfig(
        base_url=base_url,
        # Key and headers are sent only to the address for which they were set.
        api_key=own.api_key or (llm.api_key if same_server else None),
        model=model,
        timeout_s=own.timeout_s or llm.timeout_s,
        # `context_tokens` of one model must not be inherited by another model.
        context_tokens=own.context_tokens
        or (llm.context_tokens if same_server and model == llm.model else None),
        headers=(llm.headers if same_server else {}) if own.headers is None else own.headers,
        structured=own.structured or (llm.structured if same_server else Structured.JSON_SCHEMA),
        wordings=own.wordings,
        limits=llm.limits if route == DEFAULT_ROUTE and not own.limits.given else own.limits,
    )


def quota_key(llm: LLMConfig) -> str:
    """Return a digest of address, key and model: the provider counts their calls together.

    For an account without a key, its headers count as the key.
    """
    key = [llm.api_key.reveal()] if llm.api_key else []
    if not key:
        key = sorted(f"{name.lower()}: {text.reveal()}" for name, text in llm.headers.items())
    parts = [(llm.base_url or "").rstrip("/"), llm.model or "", *key]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_KEY_CHARS]


def quotas(config: Config) -> dict[str, QuotaLimits]:
    """Return the limits that are set, by quota key; they hold for each route with that key."""
    accounts = [account(config, name) for name in (DEFAULT_ROUTE, *sorted(config.routes))]
    return {quota_key(llm): llm.limits for llm in accounts if llm.limits.given}


def use_limits(section: TypeConfig | NamedLimit) -> QuotaLimits:
    """Return the limits that agents keep together for the uses of a type or of a named limit."""
    return QuotaLimits(rpm=section.rpm, in_flight=section.in_flight)

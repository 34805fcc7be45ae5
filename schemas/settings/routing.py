"""The route of a task, as agents choose it from what its line says. Pure."""

from docllm.schemas.settings.account import account
from docllm.schemas.settings.config import DEFAULT_ROUTE, Config


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

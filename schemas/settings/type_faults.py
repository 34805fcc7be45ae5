"""Finds settings of types that are valid by themselves but contradict each other."""

from collections.abc import Iterator

from docllm.schemas.settings.config import Config, RunIn, TypeConfig
from docllm.schemas.task.task_types import MAP_REDUCE, OPENAI

MAP_REDUCE_PATH = "docllm.agent.handlers:map_reduce"


def type_faults(config: Config) -> list[str]:
    """Return the faults of all types, with the fix of each."""
    return [
        f"types.{name}.{fault}"
        for name, settings in sorted(config.types.items())
        for fault in _faults(name, settings, config)
    ]


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
    if settings.run is RunIn.PROCESS:
        if settings.handler == MAP_REDUCE_PATH:
            yield f"run must be agent for {MAP_REDUCE_PATH}, which runs nothing of yours; remove it"
        if settings.handler is None:
            yield "run has no effect without a handler; name one, or remove run"
        return
    for part in ("memory_mb", "time_s"):
        if getattr(settings, part) is not None:
            yield f'{part} limits a process; set run = "process", or remove it'

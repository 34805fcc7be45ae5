"""Builds the handlers and hooks of the configured types, and what they work with."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from docllm.agent.handlers import Handler, Handlers, registry
from docllm.agent.handlers.claim_time import usual_limit_s
from docllm.agent.handlers.functions import HandlerCoroutines, HandlerThreads, LeftFunctions
from docllm.agent.handlers.handler_run import Tools
from docllm.agent.handlers.processes.pool import HandlerProcesses, ProcessHandler
from docllm.agent.handlers.processes.process import ProcessLimits
from docllm.agent.handlers.processes.suspects import run_suspect
from docllm.agent.hooks.functions import Hooks, load_hooks
from docllm.agent.judge import tiers_of
from docllm.agent.routes.names import route_refusal
from docllm.agent.wiring.choices import AgentChoices
from docllm.agent.wiring.documents import make_documents
from docllm.agent.wiring.live_settings import LoadHandlers, LoadHooks
from docllm.agent.wiring.record_path import SharedParts
from docllm.schemas.settings.config import TypeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """The handlers and hooks, and what makes them anew when the settings have changed."""

    handlers: Handlers
    hooks: Hooks
    load_handlers: LoadHandlers
    load_hooks: LoadHooks
    tools: Callable[[], Tools]


def make_handling(choices: AgentChoices, shared: SharedParts) -> Handling:
    """Load the handlers and hooks of the configured types. Raises ConfigError."""
    types = choices.parts.config.types
    left = LeftFunctions(most=choices.parts.config.agent.slots, failed=shared.failures.report)
    threads, run_async = HandlerThreads(left=left), HandlerCoroutines(left=left).run
    processes = choices.workers.processes
    load_handlers = partial(
        registry.load,
        run_async=run_async,
        run_blocking=threads.run,
        in_process=partial(_in_process, processes),
    )
    load_hooks_of = partial(load_hooks, run_async=run_async, run_blocking=threads.run)
    make_tools = partial(_make_tools, choices, shared)
    tools = make_tools()
    return Handling(
        handlers=Handlers(
            tools=tools, by_type=load_handlers(types), run_suspect=partial(run_suspect, processes)
        ),
        hooks=Hooks(tools=tools, by_kind=load_hooks_of(types)),
        load_handlers=load_handlers,
        load_hooks=load_hooks_of,
        tools=make_tools,
    )


def _make_tools(choices: AgentChoices, shared: SharedParts) -> Tools:
    config, metrics = choices.parts.config, choices.instruments.metrics
    workers, providers = choices.workers, choices.providers
    return Tools(
        route_client=providers.route_clients,
        documents=make_documents(config, workers.reading, workers.converters),
        clock=choices.parts.clock,
        apart=workers.apart,
        jitter=choices.jitter,
        prices=config.prices,
        tiers=tiers_of(config.retry_tiers),
        types=config.types,
        max_attempts_of=config.max_attempts_of,
        route_refusal=partial(route_refusal, providers.routes.naming),
        failed=shared.memory.note,
        errors=shared.counts.handler_errors,
        odd_answers=shared.counts.odd_answers,
        measures=metrics,
        usual_limit_s=usual_limit_s(providers.routes.longest_timeout_s),
    )


def _in_process(processes: HandlerProcesses, name: str, settings: TypeConfig) -> Handler:
    """Return the handler of a type that runs in processes. Raises ConfigError."""
    path = settings.handler or ""
    processes.require_usable(path)
    limits = ProcessLimits(name, memory_mb=settings.memory_mb, time_s=settings.time_s)
    return partial(processes.run, ProcessHandler(path, limits))

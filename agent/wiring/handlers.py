"""Builds the handlers and hooks of the configured types, and what they work with."""

from collections.abc import Mapping
from functools import partial

from docllm.agent.documents.conversion.by_content import ByContent
from docllm.agent.documents.conversion.kept_texts import KeptTexts
from docllm.agent.documents.files import FileSource
from docllm.agent.documents.objects import ObjectSource
from docllm.agent.documents.reader import Documents
from docllm.agent.documents.web import WebSource
from docllm.agent.handlers import Handler, Handlers, registry
from docllm.agent.handlers.functions import HandlerFunctions
from docllm.agent.handlers.handler_run import Tools
from docllm.agent.handlers.named_limits import NamedLimits
from docllm.agent.handlers.processes.process import ProcessHandler
from docllm.agent.handlers.processes.suspects import run_suspect
from docllm.agent.hooks.functions import Hook, Hooks, Tell, load_hooks
from docllm.agent.judge import tiers_of
from docllm.agent.ledger.join_children import JoinChildren
from docllm.agent.process.containment import MemoryWatch
from docllm.agent.process.failures import Failures
from docllm.agent.routes.names import route_refusal
from docllm.agent.wiring.choices import AgentChoices
from docllm.producer.input.excluded_files import own_files
from docllm.schemas.objects.address import SCHEMES
from docllm.schemas.objects.store import ObjectStores, require_library
from docllm.schemas.settings.claim_time import usual_limit_s
from docllm.schemas.settings.config import Config, TypeConfig
from docllm.schemas.settings.kinds import BatchHook
from docllm.schemas.task.hooks import HookKind


class Handling:
    """The handlers and hooks, and what makes them anew when the settings have changed.

    Raises ConfigError if those of the configured types cannot be loaded.
    """

    def __init__(
        self,
        choices: AgentChoices,
        *,
        failures: Failures,
        memory: MemoryWatch,
        limits: NamedLimits,
    ) -> None:
        self._choices = choices
        self._limits = limits
        self._memory = memory
        config, processes = choices.parts.config, choices.processes
        functions = HandlerFunctions(most_left=config.agent.slots, failed=failures.report)
        self._runner = functions.runner
        tools = self.tools()
        self.handlers = Handlers(
            tools=tools,
            by_type=self.load_handlers(config.types),
            run_suspect=partial(run_suspect, processes),
        )
        self.hooks = Hooks(
            tools=tools,
            by_kind=self.load_hooks(config.types),
            of_batches=self._load_batch_hook(config.on_batch_done),
        )

    def load_handlers(self, types: Mapping[str, TypeConfig]) -> Mapping[str, Handler]:
        """Return the handlers of types. Raises ConfigError."""
        return registry.load(types, runner=self._runner, in_process=self._in_process)

    def load_hooks(self, types: Mapping[str, TypeConfig]) -> Mapping[HookKind, Hook]:
        """Return the hooks of types. Raises ConfigError."""
        return load_hooks(types, runner=self._runner)

    def _load_batch_hook(self, setting: BatchHook | None) -> Tell | None:
        """Return what is called at the end of a batch. Raises ConfigError."""
        if setting is None:
            return None
        # Most agents have no such hook.
        from docllm.agent.hooks.batch_hooks import load_batch_hook  # noqa: PLC0415

        return load_batch_hook(setting, runner=self._runner)

    def tools(self) -> Tools:
        """Return what handlers and hooks work with, by the settings as they are now."""
        choices, config = self._choices, self._choices.parts.config
        return Tools(
            route_client=choices.route_clients,
            documents=_documents(choices, config),
            clock=choices.parts.clock,
            apart=choices.apart,
            jitter=choices.jitter,
            prices=config.prices,
            tiers=tiers_of(config.retry_tiers),
            types=config.types,
            max_attempts_of=config.max_attempts_of,
            limits=self._limits,
            children=JoinChildren(
                transactions=choices.parts.transactions,
                outputs=choices.outputs,
                executor=choices.reading,
            ).read,
            route_refusal=partial(route_refusal, choices.routes.naming),
            failed=self._memory.note,
            errors=choices.counts.handler_errors,
            odd_answers=choices.counts.odd_answers,
            measures=choices.metrics,
            usual_limit_s=usual_limit_s(choices.routes.longest_timeout_s),
        )

    def _in_process(self, name: str, settings: TypeConfig) -> Handler:
        """Return the handler of a type that runs in processes. Raises ConfigError."""
        path, processes = settings.handler or "", self._choices.processes
        processes.require_usable(path)
        handler = ProcessHandler(path, name, memory_mb=settings.memory_mb, time_s=settings.time_s)
        return partial(processes.run, handler)


def _documents(choices: AgentChoices, config: Config) -> Documents:
    """Return a reader of the documents that the settings allow.

    Raises ConfigError if they allow objects and the library for them is missing.
    """
    allow, executor = config.document_allow, choices.reading
    require_library(allow)
    objects = ObjectSource(allow=allow, stores=ObjectStores())
    web = WebSource(allow=allow, private=config.document_private, executor=executor)
    kept = (
        KeptTexts(folder=config.texts_folder, most_bytes=config.document_kept_mb << 20)
        if config.document_kept_mb
        else None
    )
    return Documents(
        sources={
            "file": FileSource(roots=config.roots(), own=own_files(config), executor=executor),
            "https": web,
            "http": web,  # which refuses it, and says why
            **dict.fromkeys(SCHEMES, objects),
        },
        conversion=ByContent(executor=executor, converters=choices.converters, kept=kept),
        executor=executor,
    )

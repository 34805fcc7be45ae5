"""Runs a handler in a unit test, without Kafka, database and provider: `FakeContext`.

The handler runs as in an agent, by the same code; only the provider, the locks, the limits and the
clock are doubles.
"""

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from docllm.agent.handlers import DocumentError, HandlerRun, Handlers, Tools
from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.decisions import state_json
from docllm.agent.handlers.documents import Expected
from docllm.agent.handlers.functions import HandlerFunctions
from docllm.agent.judge import tiers_of
from docllm.agent.ports import Call, Reply, RouteClient
from docllm.agent.ports.outcome import (
    Dead,
    HandlerState,
    Moved,
    Outcome,
    Retry,
    Snooze,
    Succeeded,
)
from docllm.agent.quota.limit import FREE, Permit
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.text.document_text import ReadText

_ROUTE, _MODEL = "default", "fake-model"
_CLAIM_S = 600.0
_OK = 200
_PAGE = 100  # children that are read together


class FakeContext:
    """One attempt at one task, for a handler under test.

    Args:
        task: The task's line as a dict. `id` is `task` if it has none.
        answers: What the provider answers to each call: a text, a whole completion (a dict with
            `choices`), another dict or list, which is sent as JSON text, or the number of an HTTP
            status, for a refusal.
        state: What an earlier run kept with `ComeBackError`.
        attempt: The number of the attempt.
        losses: How many runs of the task were cut off before.
        documents: The texts of documents that are named by URI.
        children: The tasks for which the task waited, if it is a join: dicts with `id`, and if they
            did not succeed `status`, else `result`.
        taken: The locks that another task holds, and the limits that are used up.
        settings: The settings of the task's type.

    """

    def __init__(
        self,
        task: Mapping[str, Any],
        answers: Iterable[Any] = (),
        *,
        state: Mapping[str, Any] | None = None,
        attempt: int = 1,
        losses: int = 0,
        documents: Mapping[str, str] | None = None,
        children: Sequence[Mapping[str, Any]] | None = None,
        taken: Collection[str] = (),
        settings: TypeConfig | None = None,
    ) -> None:
        self.task = {"id": "task", **task}
        self.calls: list[dict[str, Any]] = []
        self.follow_ups: list[dict[str, Any]] = []
        self.joins: dict[str, str] = {}
        self.outcome: Outcome | None = None
        self._answers = [*answers]
        self._state = None if state is None else HandlerState(state_json(dict(state)), 1)
        self._attempt = attempt
        self._losses = losses
        self._documents = _Documents(dict(documents or {}))
        self._children = children
        self._taken = frozenset(taken)
        self._settings = settings or TypeConfig()

    async def run(self, handler: Callable[..., Any]) -> Any:
        """Run a handler, async or plain, and return what it returns.

        Afterwards, `calls` has the bodies of its calls, and `follow_ups` the lines that it has
        ordered; they count only if it returns. `joins` has the ids of the joins among them, each
        with its `on_dead_child`. Raises what the handler raises, also `GiveUpError`,
        `TryAgainError` and `ComeBackError`, and AssertionError for a call without an answer or a
        result that an agent could not store.
        """
        self.calls.clear()
        self.follow_ups.clear()
        self.joins.clear()
        clock = _Clock()
        run = HandlerFunctions(most_left=1000, failed=lambda _reason: None).runner(handler)
        returned: list[Any] = []
        raised: list[BaseException] = []

        async def noted(context: AttemptContext) -> Any:
            try:
                result = await run(handler, context)
            except BaseException as error:
                raised.append(error)
                raise
            returned.append(result)
            self.follow_ups += [orjson.loads(order.value) for order in context.follow_ups]
            self.joins |= {
                order.key: order.join_role.name.lower()
                for order in context.follow_ups
                if order.join_role.is_join
            }
            return result

        task_type = str(self.task.get("type", "document"))
        handlers = Handlers(
            tools=self._tools(task_type, clock), by_type={task_type: noted}, run_suspect=_no_suspect
        )
        self.outcome = await handlers.run(
            HandlerRun(
                task_id=1,
                batch="test",
                value=orjson.dumps(self.task),
                counted_before=self._attempt - 1,
                max_attempts=max(5, self._attempt),
                snoozes=0,
                left_s=_CLAIM_S,
                route=_ROUTE,
                limit_s=None,
                refused_alone=False,
                may_call=lambda: True,
                locks=_Locks(self._taken),
                state=self._state,
                losses=self._losses,
            )
        )
        if raised:
            raise raised[0]
        assert isinstance(self.outcome, Succeeded), _text_of(self.outcome)  # noqa: S101 - of a test
        return returned[0]

    def _tools(self, task_type: str, clock: "_Clock") -> Tools:
        return Tools(
            route_client={
                _ROUTE: RouteClient(_LLM(self._answers, self.calls), _MODEL, 60.0)
            }.__getitem__,
            documents=self._documents,
            clock=clock,
            apart=InlineExecutor(),
            jitter=lambda: 0.5,
            prices={},
            tiers=tiers_of(("30s", "5m", "1h")),
            types=_AnyType({task_type: self._settings}),
            max_attempts_of=lambda _type: 5,
            limits=_Limits(self._taken),
            children=self._read_children,
        )

    async def _read_children(self, _join_id: int, after: int) -> list[list[Any]]:
        if self._children is None:
            raise ValueError("FakeContext runs no join; give it: children=[{'id': ...}, ...]")
        page = self._children[after : after + _PAGE]
        return [
            [number, child["id"], child.get("status", "succeeded"), child.get("result")]
            for number, child in enumerate(page, after + 1)
        ]


@dataclass
class _LLM:
    """The provider: it gives the answers in order."""

    answers: list[Any]
    calls: list[dict[str, Any]]

    async def complete(self, call: Call) -> Reply:
        self.calls.append(orjson.loads(call.body))
        if len(self.calls) > len(self.answers):
            raise AssertionError(
                f"the handler has made {len(self.calls)} calls, and answers has "
                f"{len(self.answers)}; give FakeContext one for each call"
            )
        answer = self.answers[len(self.calls) - 1]
        if isinstance(answer, int) and not isinstance(answer, bool):
            error = {"message": f"status {answer} of a test", "type": "test"}
            return Reply(answer, {}, orjson.dumps({"error": error}))
        if not (isinstance(answer, Mapping) and "choices" in answer):
            content = answer if isinstance(answer, str) else orjson.dumps(answer).decode()
            message = {"role": "assistant", "content": content}
            answer = {"choices": [{"message": message, "finish_reason": "stop"}], "model": _MODEL}
        return Reply(_OK, {}, orjson.dumps(answer))

    async def close(self) -> None:
        """Do nothing."""


@dataclass
class _Documents:
    texts: Mapping[str, str]

    async def read(self, uri: str, _expected: Expected) -> ReadText:
        if uri not in self.texts:
            text = f"FakeContext has no document {uri}; give it: documents={{{uri!r}: '...'}}"
            raise DocumentError(ErrorClass.DOCUMENT_REFUSED, text)
        return ReadText(self.texts[uri], ())


@dataclass
class _Locks:
    """Locks of which some are taken, and the others are free."""

    taken: frozenset[str]
    _tokens: dict[str, int] = field(default_factory=dict)

    def ask(self, name: str) -> None:
        """Do nothing."""

    async def wait(self, name: str, _wait_s: float, *, once: bool = False) -> int | None:
        del once
        if name in self.taken:
            return None
        self._tokens[name] = self._tokens.get(name, 0) + 1
        return self._tokens[name]

    def give_back(self, name: str) -> None:
        """Do nothing."""


@dataclass
class _Limits:
    taken: frozenset[str]

    async def wait_for_use(self, name: str, _wait_s: float) -> Permit | None:
        return None if name in self.taken else copy.copy(FREE)

    def end_use(self, _permit: Permit) -> None:
        """Do nothing."""


class _AnyType(dict[str, TypeConfig]):
    """The types that a follow-up may have: any, because the settings of an agent are not there."""

    def __contains__(self, name: object) -> bool:
        return True


@dataclass
class _Clock:
    """A clock of which a wait takes no time."""

    passed_s: float = 0.0

    def now_s(self) -> float:
        return self.passed_s

    def utc_s(self) -> float:
        return 1_800_000_000.0 + self.passed_s

    async def sleep(self, delay_s: float) -> None:
        self.passed_s += delay_s


async def _no_suspect(_handler: Any, _context: AttemptContext) -> None:
    raise AssertionError("no agent was lost over this task")


def _text_of(outcome: Outcome) -> str:
    if isinstance(outcome, Retry | Snooze | Moved | Dead):
        return f"an agent could not store this: {outcome.failure.text}"
    return f"an agent would end this as {type(outcome).__name__}"

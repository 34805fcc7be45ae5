"""The handler of `map-reduce`: a document of any length, in parts whose answers are merged.

A document that fits one request makes one call, as type `document` does. A longer document is
split, and the task's prompt is applied to each part. The answers are merged, in several levels if
they do not fit one request. The schema applies to the final answer only. If a part fails, the task
fails. The parts' answers are in memory only: the next attempt begins with the first part.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import orjson

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.builtin.chat import chat
from docllm.agent.handlers.builtin.parts import split
from docllm.agent.handlers.calls.request import chat_body
from docllm.agent.handlers.calls.results import Answer, CallRefusedError
from docllm.agent.handlers.decisions import GiveUpError
from docllm.agent.judge.classes import CLASSES, Action, Effect
from docllm.agent.ports.outcome import Dead, Failure, Retry, Snooze
from docllm.schemas.settings.known_models import UNKNOWN_TOKENS
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.line.parsing import PLACEHOLDER, TaskLine
from docllm.schemas.task.record.hints import most_out

MAX_AGAIN = 3  # retries after counted failures; a refusal for a limit is retried until time is up
FIRST_WAIT_S = 1.0
CALLS_AT_ONCE = 4  # calls that one task makes at the same time
OVERLAP_TOKENS = 200
_ANSWER_SHARE = 0.25  # the share of the context that is left for the answer
_MAX_ANSWER_TOKENS = 8192
_SAFE_SHARE = 0.75  # the share of the rest that is used, because tokens are estimated
_MIN_TOKENS_PER_BYTE, _MAX_TOKENS_PER_BYTE = 1 / 8, 1.0
_MIN_TOKENS = 100  # the smallest part
_MIN_BYTES = 1000  # a smaller part is not split again
_END_S = 1.0  # the calls must be done so long before the attempt's end

_PART = """\
The document below is one part of a longer document. Do the following for this part alone; the \
answers for all parts are merged later.{note}

"""
_SCHEMA_NOTE = " The merged answer must fit this JSON Schema, so note all that it asks for: "
_PART_NAME = "[part {number} of {count}]\n"
MERGE_PROMPT = """\
A document was too long for one request. It was split into parts, and the task below was done for \
each part. Merge the answers into one answer to the task, for the whole document. Neighbouring \
parts share some text, so leave out what is said twice. Keep the order of the document, and do \
not mention parts.

The task:
{prompt}

The answers:
{answers}"""
T = TypeVar("T")

_FIELDS = re.compile(r"\{(?:prompt|answers)\}")


@dataclass(frozen=True, slots=True)
class _PartAnswer:
    """An answer for the parts from `first` to `last`."""

    first: int
    last: int
    text: str

    def __str__(self) -> str:
        return f"{_parts(self.first, self.last)}:\n{self.text.strip()}\n"


async def map_reduce(context: AttemptContext) -> Answer | Dead:
    """Answer a task whose document may be longer than what its model takes.

    It can also be the handler of a type of your own, as `docllm.agent.handlers:map_reduce`.
    """
    task, prompt = context.task, context.prompt
    has_input = task.text is not None or task.uri is not None
    if task.body is not None or prompt is None or not has_input or PLACEHOLDER not in prompt:
        return await chat(context)
    document = await context.document() or ""
    return await _LongDocument(context, task=replace(task, prompt=prompt, schema=None)).answer(
        document
    )


class _LongDocument:
    """One document of one attempt. `task` has the prompt and no schema."""

    def __init__(self, context: AttemptContext, *, task: TaskLine) -> None:
        self._context = context
        self._task = task
        self._schema = context.schema
        self._schema_text = "" if self._schema is None else _text(self._schema)
        self._count = 1
        self._answered = 0

    async def answer(self, document: str) -> Answer | Dead:
        """Return the answer for the whole document, or why there can be none."""
        part_bytes = self._room_bytes()
        if part_bytes is None:
            return self._dead("the prompt leaves no room for a part of the document; shorten it")
        if len(document.encode("utf-8", "replace")) <= part_bytes:
            try:
                return await self._final_call(self._task, document)
            except CallRefusedError as error:
                if not _is_too_long(error):
                    raise
            part_bytes //= 2  # the estimate was wrong
        parts = self._split(document, part_bytes)
        del document
        limit_s = self._context.left_s - _END_S
        try:
            async with asyncio.timeout(limit_s):
                return await self._merged(await self._part_answers(parts))
        except TimeoutError:
            place = f"[types.{self._task.type}]" if self._task.time_limit_s is None else "its line"
            raise GiveUpError(
                f"{self._answered} of {self._count} parts were answered in {limit_s:.0f} s, the "
                "time of an attempt, and another attempt would start from the first part; set a "
                f"longer time_limit_s in {place}"
            ) from None

    # ---- the parts

    def _split(self, document: str, part_bytes: int) -> list[str]:
        overlap = self._context.rules.overlap_tokens
        tokens = OVERLAP_TOKENS if overlap is None else overlap
        return split(document, part_bytes=part_bytes, overlap_bytes=self._bytes(tokens))

    async def _part_answers(self, parts: Sequence[str]) -> list[_PartAnswer]:
        self._count = len(parts)
        calls = [partial(self._answer_whole, number, part) for number, part in enumerate(parts, 1)]
        answers_by_part = await _run_few_at_once(calls)
        return [answer for answers in answers_by_part for answer in answers]

    async def _answer_whole(self, number: int, part: str) -> list[_PartAnswer]:
        answers = await self._answer_part(number, part)
        self._answered += 1
        return answers

    async def _answer_part(self, number: int, part: str) -> list[_PartAnswer]:
        """Return the answer for a part; more than one if the part had to be split again."""
        try:
            answer = await self._call_for_part(number, part)
        except CallRefusedError as error:
            size = len(part.encode("utf-8", "replace"))
            if not _is_too_long(error) or size < _MIN_BYTES:
                raise _named(error, f"part {number} of {self._count}") from None
        else:
            return [_PartAnswer(number, number, answer.text)]
        halves = [await self._answer_part(number, half) for half in self._split(part, size // 2)]
        return [answer for half in halves for answer in half]

    async def _call_for_part(self, number: int, part: str) -> Answer:
        task = replace(self._task, prompt=self._intro() + (self._task.prompt or ""))
        name = _PART_NAME.format(number=number, count=self._count)
        return await _complete(self._context, self._body(task, name + part))

    def _intro(self) -> str:
        note = _SCHEMA_NOTE + self._schema_text if self._schema_text else ""
        return _PART.replace("{note}", note)

    # ---- the merge

    async def _merged(self, answers: list[_PartAnswer]) -> Answer | Dead:
        while True:
            room = self._merge_bytes()
            groups = _groups(answers, room)
            if len(groups) == 1:
                try:
                    return await self._final_call(self._merge_task(answers))
                except CallRefusedError as error:
                    raise _named(error, f"the merge of {self._count} answers") from None
            if len(groups) == len(answers):
                longest = max(answers, key=lambda answer: len(answer.text))
                return self._dead(
                    f"the answer for {_parts(longest.first, longest.last)} is too long to be "
                    "merged with another one; ask for shorter answers, or set max_tokens in params"
                )
            answers = await _run_few_at_once(
                [partial(self._merge_group, group) for group in groups]
            )

    async def _merge_group(self, group: Sequence[_PartAnswer]) -> _PartAnswer:
        if len(group) == 1:
            return group[0]
        first, last = group[0].first, group[-1].last
        try:
            answer = await _complete(self._context, self._body(self._merge_task(group)))
        except CallRefusedError as error:
            raise _named(error, f"the merge of {_parts(first, last)}") from None
        return _PartAnswer(first, last, answer.text)

    def _merge_task(self, answers: Sequence[_PartAnswer]) -> TaskLine:
        values = {
            "{prompt}": (self._task.prompt or "").replace(PLACEHOLDER, "(the document)"),
            "{answers}": "\n".join(map(str, answers)),
        }
        text = _FIELDS.sub(lambda match: values[match[0]], self._merge_prompt)
        return replace(self._task, prompt=text)

    @property
    def _merge_prompt(self) -> str:
        return self._context.rules.merge_prompt or MERGE_PROMPT

    # ---- sizes

    def _room_bytes(self) -> int | None:
        """Return how many bytes of the document a request can have; None if too few."""
        prompt = self._task.prompt or ""
        fixed = self._intro() + prompt
        tokens = self._room_tokens(fixed) // prompt.count(PLACEHOLDER)
        most = self._context.rules.part_tokens
        tokens = tokens if most is None else min(tokens, most)
        return None if tokens < _MIN_TOKENS else self._bytes(tokens)

    def _merge_bytes(self) -> int:
        fixed = self._merge_prompt + (self._task.prompt or "") + self._schema_text
        return self._bytes(max(_MIN_TOKENS, self._room_tokens(fixed)))

    def _room_tokens(self, fixed: str) -> int:
        """Return how many tokens are left beside a text and the answer."""
        context = self._context.context_tokens or UNKNOWN_TOKENS
        usual = min(_MAX_ANSWER_TOKENS, round(_ANSWER_SHARE * context))
        answer = most_out(self._task.params) or usual
        used = len(fixed.encode("utf-8", "replace")) * self._tokens_per_byte
        return round(_SAFE_SHARE * (context - answer) - used)

    def _bytes(self, tokens: int) -> int:
        return round(tokens / self._tokens_per_byte)

    @property
    def _tokens_per_byte(self) -> float:
        """The learned tokens per byte, within bounds: some servers report wrong counts."""
        return min(_MAX_TOKENS_PER_BYTE, max(_MIN_TOKENS_PER_BYTE, self._context.tokens_per_byte))

    # ---- calls

    async def _final_call(self, task: TaskLine, document: str | None = None) -> Answer:
        """Make the call whose answer is the task's."""
        body = self._body(replace(task, schema=self._schema), document)
        return await _complete(self._context, body, schema=self._schema)

    def _body(self, task: TaskLine, document: str | None = None) -> dict[str, object]:
        return chat_body(task, document, self._context.model, self._context.structured)

    def _dead(self, text: str) -> Dead:
        return Dead(Failure(ErrorClass.TOO_LONG, text), self._context.spent)


async def _complete(
    context: AttemptContext, body: Mapping[str, Any], *, schema: dict[str, Any] | None = None
) -> Answer:
    """Make a chat completion as `Context.complete` does, and retry it after a temporary failure.

    Otherwise the attempt would repeat all of its calls for one that was refused.
    """
    failures = 0
    while True:
        try:
            return await context.complete(body, schema=schema)
        except CallRefusedError as error:
            refused = error
        outcome = refused.outcome
        if not isinstance(outcome, Retry | Snooze | Dead):
            raise refused
        rule = CLASSES.get(outcome.failure.error_class)
        if rule is not None and rule.route is Effect.REFUSAL:
            asked_s = outcome.delay_s if isinstance(outcome, Snooze) else 0.0
            await context.call_again(refused, max(FIRST_WAIT_S, asked_s))
            continue
        failures += 1
        if rule is None or rule.action is not Action.RETRY or failures > MAX_AGAIN:
            raise refused
        await context.call_again(refused, FIRST_WAIT_S * 2 ** (failures - 1))


async def _run_few_at_once(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run calls, a few at a time; return their results.

    The first failure cancels the others.
    """
    results: dict[int, T] = {}
    waiting = iter(enumerate(calls))

    async def work() -> None:
        for index, call in waiting:
            results[index] = await call()

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(CALLS_AT_ONCE, len(calls))):
            workers.create_task(work())
    return [results[index] for index in range(len(calls))]


def _groups(answers: Sequence[_PartAnswer], most_bytes: int) -> list[list[_PartAnswer]]:
    """Return neighbouring answers together, as many as fit a request."""
    groups: list[list[_PartAnswer]] = []
    left = 0
    for answer in answers:
        size = len(str(answer).encode("utf-8", "replace")) + 1
        if not groups or size > left:
            groups.append([])
            left = most_bytes
        groups[-1].append(answer)
        left -= size
    return groups


def _is_too_long(error: CallRefusedError) -> bool:
    """Return whether every route that the task may take refused the request as too long.

    A snooze says that a fallback may take the request, but has no room for it at the moment.
    """
    outcome = error.outcome
    if not isinstance(outcome, Dead):
        return False
    error_class = outcome.failure.error_class
    is_refused = error_class == ErrorClass.TOO_LONG and not error.was_answered
    return is_refused or error_class == ErrorClass.INPUT_CUT


def _named(error: CallRefusedError, name: str) -> CallRefusedError:
    """Return the error with the name of its part or merge in the text."""
    outcome = error.outcome
    if not isinstance(outcome, Retry | Snooze | Dead):
        return error
    failure = replace(outcome.failure, text=f"{name}: {outcome.failure.text}")
    return CallRefusedError(replace(outcome, failure=failure), was_answered=error.was_answered)


def _text(schema: dict[str, Any]) -> str:
    """Return a schema as text for a prompt, with any document placeholder in it made harmless."""
    return orjson.dumps(schema).decode().replace(PLACEHOLDER, "(the document)")


def _parts(first: int, last: int) -> str:
    return f"part {first}" if first == last else f"parts {first} to {last}"

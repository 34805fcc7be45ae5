"""The handler of `map-reduce`: parts, merges, and failures that name their part."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from docllm.agent.handlers import map_reduce
from docllm.agent.handlers.calls.other_route import OtherRoute
from docllm.agent.handlers.calls.permits import CallEnd
from docllm.agent.handlers.handler_run import HandlerRun
from docllm.agent.ports import Call, CallFailed, Reply
from docllm.agent.ports.outcome import Dead, Outcome, Retry, Snooze, Succeeded
from docllm.agent.quota.limit import FREE, Permit
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.result.codec import has_json
from tests.support.handlers import (
    FakeLLM,
    HandlersHarness,
    StillClock,
    completion,
    failure_of,
    handlers_harness,
    succeeded,
)

PROMPT = "List the names.\n{document}"
PART = re.compile(r"\[part (\d+) of (\d+)\]\n(.*)", re.DOTALL)
TOO_LONG = Reply(400, {}, b'{"error": {"code": "context_length_exceeded", "message": "long"}}')
SCHEMA = {"type": "object", "properties": {"names": {"type": "array"}}, "required": ["names"]}


class PassingClock(StillClock):
    """A clock on which waiting takes no time."""

    async def sleep(self, delay_s: float) -> None:
        self.at_s += delay_s
        await asyncio.sleep(0)


@dataclass
class CountedPermits:
    """Permits that are free and counted."""

    lengths: list[int] = field(default_factory=list)
    ends: list[CallEnd | None] = field(default_factory=list)

    async def acquire(self, length: int, _most_out: int | None, _wait_s: float) -> Permit:
        self.lengths.append(length)
        return FREE

    def release(self, _permit: Permit, end: CallEnd | None) -> None:
        self.ends.append(end)


@dataclass
class Provider(FakeLLM):
    """Answers by `answer`, which gets the prompt; counts how many calls run at once."""

    replies: list[Reply | CallFailed] = field(default_factory=list)
    answer: Callable[[str], Reply | CallFailed | str] = lambda _prompt: "Fine."
    turns_of: Callable[[str], int] = lambda _prompt: 1  # of the loop, until the answer comes
    running: int = 0
    most: int = 0

    async def complete(self, call: Call) -> Reply | CallFailed:
        self.calls.append(call)
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(self.turns_of(prompt_of(call))):
            await asyncio.sleep(0)
        self.running -= 1
        reply = self.answer(prompt_of(call))
        return completion_of(call, reply) if isinstance(reply, str) else reply

    @property
    def prompts(self) -> list[str]:
        return [prompt_of(call) for call in self.calls]

    @property
    def parts(self) -> list[tuple[int, int, str]]:
        found = [match for prompt in self.prompts if (match := PART.search(prompt))]
        return [(int(match[1]), int(match[2]), match[3]) for match in found]


def prompt_of(call: Call) -> str:
    content = orjson.loads(call.body)["messages"][0]["content"]
    assert isinstance(content, str)
    return content


def completion_of(call: Call, text: str) -> Reply:
    """Return an answer whose usage has four bytes a token, as the estimate."""
    usage = {"prompt_tokens": len(call.body) // 4, "completion_tokens": 10}
    choices = [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
    return Reply(200, {}, orjson.dumps({"model": "m", "choices": choices, "usage": usage}))


def document(paragraphs: int) -> str:
    return "\n\n".join(f"Name {number} " + "x" * 390 for number in range(paragraphs))


def task(text: str, **fields: Any) -> dict[str, Any]:
    return {"id": "a", "type": "map-reduce", "prompt": PROMPT, "input": {"text": text}} | fields


def harness(
    answer: Callable[[str], Reply | CallFailed | str] = lambda _prompt: "Fine.",
    context_tokens: int | None = 4000,
    **settings: Any,
) -> tuple[HandlersHarness, Provider]:
    provider = Provider(answer=answer)
    tried = handlers_harness(
        llm=provider,
        clock=PassingClock(),
        context_tokens=context_tokens,
        types={"map-reduce": TypeConfig(**settings)},
    )
    return tried, provider


def body_of(outcome: Outcome) -> str:
    assert isinstance(outcome, Succeeded)
    content = orjson.loads(outcome.body)["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


# ---- parts and merges


def test_a_document_that_fits_makes_the_call_of_a_document() -> None:
    """A short document costs what it costs without parts."""
    tried, provider = harness()

    outcome = tried.run(task("Anna met Ben."))

    assert body_of(outcome) == "Fine."
    assert provider.prompts == ["List the names.\nAnna met Ben."]


def test_the_answers_for_parts_are_merged_in_the_documents_order() -> None:
    """Each part gets the task's prompt; the merge gets all answers in order, and the task."""

    def answer(prompt: str) -> str:
        part = PART.search(prompt)
        return f"names of {part[1]}" if part else "all names"

    tried, provider = harness(answer)
    provider.turns_of = lambda prompt: 9 if "[part 1 of" in prompt else 1  # it ends last

    outcome = tried.run(task(document(60)))

    assert body_of(outcome) == "all names"
    count = len(provider.parts)
    assert 3 <= count == len(provider.calls) - 1
    assert [number for number, _, _ in provider.parts] == [*range(1, count + 1)]
    assert {total for _, total, _ in provider.parts} == {count}
    assert all(f"Name {number} " in "".join(p for *_, p in provider.parts) for number in range(60))
    merge = provider.prompts[-1]
    places = [merge.index(f"part {number}:\nnames of {number}") for number in range(1, count + 1)]
    assert places == sorted(places)
    assert "List the names.\n(the document)" in merge
    assert all(len(call.body) / 4 <= 4000 for call in provider.calls)


def test_a_few_calls_run_at_once_and_all_are_paid_by_the_task() -> None:
    """The cost of all calls is the attempt's, to the token."""
    tried, provider = harness()

    outcome = succeeded(tried.run(task(document(100))))

    assert provider.most == 4
    assert outcome.spent.tokens_in == sum(len(call.body) // 4 for call in provider.calls)
    assert outcome.spent.tokens_out == 10 * len(provider.calls)


def test_each_call_takes_its_turn_in_the_account() -> None:
    """No call begins without one, and each permit is given back."""
    permits = CountedPermits()
    tried, provider = harness()

    tried.run(task(document(60)), call_permits=permits)

    assert permits.lengths == [len(call.body) for call in provider.calls]
    assert len(permits.ends) == len(provider.calls) > 3


def test_long_answers_are_merged_in_levels() -> None:
    """As many neighbours are merged as fit, until one request holds all."""

    def answer(prompt: str) -> str:
        return "y" * 4000 if PART.search(prompt) else "z" * 3000

    tried, provider = harness(answer)

    outcome = tried.run(task(document(160)))

    assert body_of(outcome) == "z" * 3000
    merges = [prompt for prompt in provider.prompts if not PART.search(prompt)]
    assert len(merges) >= 4
    assert all(len(call.body) / 4 <= 4000 for call in provider.calls)
    named = "".join(merges)
    assert all(f"part {number}:" in named for number, _, _ in provider.parts)


def test_answers_that_cannot_be_merged_name_the_longest() -> None:
    """Two answers that fit no request together would be merged for ever."""
    tried, _ = harness(lambda _prompt: "y" * 9000)

    outcome = tried.run(task(document(60)))

    assert isinstance(outcome, Dead)
    assert outcome.failure.error_class == "TOO_LONG"
    assert "part 1 is too long to be merged" in outcome.failure.text
    assert outcome.spent.tokens_out


def test_the_schema_holds_for_the_last_answer_alone() -> None:
    """Parts are told of it, so that their answers have what the last one needs."""

    def answer(prompt: str) -> str:
        return "Anna, Ben" if PART.search(prompt) else '{"names": ["Anna", "Ben"]}'

    tried, provider = harness(answer)

    outcome = tried.run(task(document(60), schema=SCHEMA))

    assert body_of(outcome) == '{"names": ["Anna", "Ben"]}'
    bodies = [orjson.loads(call.body) for call in provider.calls]
    assert ["response_format" in body for body in bodies] == [False] * (len(bodies) - 1) + [True]
    assert all('"required":["names"]' in prompt for prompt in provider.prompts[:-1])


def test_a_short_document_is_asked_for_under_the_schema() -> None:
    """The only answer is the last one; under the schema of the type it is exported as JSON."""
    tried, provider = harness(lambda _prompt: '{"names": []}', schema=SCHEMA)

    outcome = succeeded(tried.run(task("Anna")))

    assert "response_format" in orjson.loads(provider.calls[0].body)
    assert has_json(outcome.codec)


def test_settings_bound_parts_and_word_the_merge() -> None:
    """Braces of prompts and answers are no fields."""
    tried, provider = harness(
        lambda _prompt: "{prompt}",
        context_tokens=None,
        part_tokens=300,
        overlap_tokens=0,
        merge_prompt="Merge {answers} for {prompt} {x}",
    )

    tried.run(task(document(12)))

    assert len(provider.parts) == 4
    assert sum(len(part) for *_, part in provider.parts) == len(document(12))
    assert provider.prompts[-1].startswith("Merge part 1:\n{prompt}\n")
    assert provider.prompts[-1].endswith("for List the names.\n(the document) {x}")


def test_a_prompt_that_leaves_no_room_is_dead_without_a_call() -> None:
    """No part of the document would fit beside it."""
    tried, provider = harness()

    outcome = tried.run(task(document(9), prompt="x" * 16_000 + "{document}"))

    assert isinstance(outcome, Dead)
    assert "leaves no room" in outcome.failure.text
    assert provider.calls == []


def test_a_task_without_a_document_is_a_plain_prompt() -> None:
    """There is nothing to split."""
    tried, provider = harness()

    assert body_of(tried.run({"id": "a", "type": "map-reduce", "prompt": "Hi"})) == "Fine."
    assert provider.prompts == ["Hi"]


def test_a_type_of_your_own_takes_it_as_its_handler() -> None:
    """Several kinds of long documents can have their own prompts."""
    provider = Provider(answer=lambda _prompt: "Fine.")
    types = {"minutes": TypeConfig(prompt="Decisions? {document}", part_tokens=300)}
    tried = handlers_harness(llm=provider, types=types, minutes=map_reduce)

    tried.run({"id": "a", "type": "minutes", "input": {"text": document(12)}})

    assert len(provider.parts) > 3
    assert "Decisions?" in provider.prompts[0]


# ---- lengths that are not as estimated


def test_a_part_that_the_provider_finds_too_long_is_split_again() -> None:
    """Tokens are only estimated; a refused request costs nothing."""
    text = document(60)

    def answer(prompt: str) -> Reply | str:
        return TOO_LONG if len(prompt) > 3000 else "Fine."

    tried, provider = harness(answer)

    outcome = tried.run(task(text))

    assert body_of(outcome) == "Fine."
    short = "".join(part for *_, part in provider.parts if len(part) < 3000)
    assert all(f"Name {number} " in short for number in range(60))


def test_a_document_that_seemed_to_fit_is_split_when_it_does_not() -> None:
    """The model takes less than anybody knew."""
    tried, provider = harness(lambda prompt: TOO_LONG if len(prompt) > 3000 else "Fine.")

    assert body_of(tried.run(task(document(15)))) == "Fine."
    assert len(provider.parts) > 2


def test_lengths_are_learned_from_the_answers() -> None:
    """A language with more tokens a byte gets shorter parts."""

    def dense(_prompt: str) -> Reply:
        usage = {"prompt_tokens": 6000, "completion_tokens": 10}
        choices = [{"message": {"content": "Fine."}, "finish_reason": "stop"}]
        return Reply(200, {}, orjson.dumps({"choices": choices, "usage": usage}))

    tried, provider = harness(dense)
    tried.run(task(document(100)))
    before = max(len(part) for *_, part in provider.parts)
    provider.calls.clear()
    tried.run(task(document(100)))

    assert max(len(part) for *_, part in provider.parts) < before


# ---- failures


def refuse_part(number: int, reply: Reply, times: int = 1_000) -> Callable[[str], Reply | str]:
    """Return a provider that fails for one part, so many times."""
    left = [times]

    def answer(prompt: str) -> Reply | str:
        part = PART.search(prompt)
        if part and int(part[1]) == number and left[0] > 0:
            left[0] -= 1
            return reply
        return "Fine."

    return answer


def test_a_part_that_fails_fails_the_task_and_is_named() -> None:
    """No answer is made of the other parts, and they are not asked in vain."""
    filtered = completion(reason="content_filter")
    tried, provider = harness(refuse_part(2, filtered))

    outcome = tried.run(task(document(400)))

    assert isinstance(outcome, Dead)
    assert outcome.failure.error_class == "FILTERED"
    assert re.match(r"part 2 of \d+: ", outcome.failure.text)
    assert len(provider.calls) < provider.parts[0][1] / 2
    assert outcome.spent.tokens_in >= 10


def test_a_cut_answer_is_no_reason_to_split_again() -> None:
    """A cut answer is paid for, and would be cut again."""
    tried, provider = harness(refuse_part(1, completion(reason="length")))

    outcome = tried.run(task(document(60)))

    assert isinstance(outcome, Dead)
    assert "max_tokens" in outcome.failure.text
    assert len([number for number, *_ in provider.parts if number == 1]) == 1


@pytest.mark.parametrize("reply", [Reply(429, {"retry-after": "2"}, b""), Reply(500, {}, b"")])
def test_a_failure_that_passes_does_not_repeat_the_parts(reply: Reply) -> None:
    """The call is made again within the attempt, once its route takes it."""
    tried, provider = harness(refuse_part(2, reply, times=2))
    asked: list[Outcome] = []

    def again(outcome: Outcome) -> OtherRoute | Outcome:
        asked.append(outcome)
        return OtherRoute("default")

    outcome = tried.run(task(document(60)), retry_on_route=again)

    assert body_of(outcome) == "Fine."
    assert len([number for number, *_ in provider.parts if number == 2]) == 3
    assert len([number for number, *_ in provider.parts if number == 1]) == 1
    assert len(asked) == 2
    assert tried.clock.at_s >= 103


def test_a_route_that_takes_no_call_ends_the_attempt() -> None:
    """The attempt's outcome is settled as for any other task."""
    tried, provider = harness(refuse_part(2, Reply(429, {}, b"")))

    outcome = tried.run(task(document(60)))

    assert isinstance(outcome, Snooze)
    assert failure_of(outcome).text.startswith("part 2 of")
    assert len([number for number, *_ in provider.parts if number == 2]) == 1


def test_a_part_that_keeps_failing_counts() -> None:
    """After four failures the attempt has failed."""
    tried, provider = harness(refuse_part(2, Reply(500, {}, b"")))

    outcome = tried.run(task(document(60)), retry_on_route=lambda _outcome: OtherRoute("default"))

    assert isinstance(outcome, Retry)
    assert len([number for number, *_ in provider.parts if number == 2]) == 4


def test_waits_for_limits_do_not_make_those_after_failures_longer() -> None:
    """Else a failure after many refusals would end the attempt, and all parts be paid again."""
    replies = [Reply(429, {}, b"")] * 20 + [Reply(500, {}, b"")]

    def answer(prompt: str) -> Reply | str:
        part = PART.search(prompt)
        return replies.pop(0) if part and int(part[1]) == 2 and replies else "Fine."

    tried, _ = harness(answer)

    outcome = tried.run(task(document(60)), retry_on_route=lambda _outcome: OtherRoute("default"))

    assert body_of(outcome) == "Fine."


def test_a_route_without_room_is_waited_for() -> None:
    """The answers for the other parts would be paid for again; after its time, the attempt ends."""
    answers: list[OtherRoute | None] = [None, None, OtherRoute("default")]
    tried, _ = harness(refuse_part(2, Reply(429, {}, b""), times=1))

    outcome = tried.run(task(document(60)), retry_on_route=lambda _outcome: answers.pop(0))

    assert body_of(outcome) == "Fine."
    assert tried.clock.at_s >= 103
    never, _ = harness(refuse_part(2, Reply(429, {}, b"")))
    assert isinstance(never.run(task(document(60)), retry_on_route=lambda _outcome: None), Snooze)
    assert never.clock.at_s > 150


def test_nobody_waits_longer_than_the_attempt() -> None:
    """A provider that asks for an hour gets it between two attempts."""
    tried, _ = harness(refuse_part(2, Reply(429, {"retry-after": "3600"}, b"")))

    outcome = tried.run(task(document(60)), retry_on_route=lambda _outcome: OtherRoute("default"))

    assert isinstance(outcome, Snooze)
    assert tried.clock.at_s == 100


def test_an_attempt_without_time_for_all_parts_is_given_up() -> None:
    """The next one would pay for the same parts again; the error names the setting."""
    tried, provider = harness(time_limit_s=1.05)

    async def hang(call: Call) -> Reply | CallFailed:
        provider.calls.append(call)
        if len(provider.calls) > 2:
            await asyncio.Event().wait()
        return completion_of(call, "Fine.")

    provider.complete = hang  # type: ignore[method-assign]

    outcome = tried.run(task(document(60)))

    failure = failure_of(outcome)
    assert failure.error_class == "HANDLER_GAVE_UP"
    assert re.search(r"2 of \d+ parts were answered", failure.text)
    assert "time_limit_s in [types.map-reduce]" in failure.text


def test_a_part_that_was_split_again_is_answered_once() -> None:
    """All of a part's pieces together are one part of the count."""
    tried, provider = harness(time_limit_s=1.05)

    async def hang_in_merge(call: Call) -> Reply | CallFailed:
        provider.calls.append(call)
        if PART.search(prompt_of(call)) is None:
            await asyncio.Event().wait()
        return TOO_LONG if len(prompt_of(call)) > 3000 else completion_of(call, "Fine.")

    provider.complete = hang_in_merge  # type: ignore[method-assign]

    failure = failure_of(tried.run(task(document(60))))

    counts = re.search(r"(\d+) of (\d+) parts were answered", failure.text)
    assert counts is not None
    assert int(counts[1]) == int(counts[2]) < len(provider.parts)


def test_a_lost_lease_ends_the_attempt() -> None:
    """No other call is made, and nothing is settled."""
    tried, provider = harness()
    attempt: HandlerRun = tried.attempt(value=orjson.dumps(task(document(60))))

    def answer_without_lease(_prompt: str) -> str:
        tried.leased = False
        return "Fine."

    provider.answer = answer_without_lease

    outcome = asyncio.run(tried.handlers.run(attempt))

    assert type(outcome).__name__ == "Released"
    assert len(provider.calls) <= 4

"""What `finish_reason` means: the roots of its words decide, and an unknown one is no error."""

from dataclasses import replace
from typing import Any

import pytest

from docllm.agent.judge import judge
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Dead, Retry, Succeeded
from tests.support.replies import FACTS, completion

WHOLE = (
    "stop STOP stop_sequence eos eos_token eosFound stopStringFound end end_turn endoftext done "
    "complete COMPLETE completed finished normal success FinishReason.STOP FINISH_REASON_STOP null"
)
CUT = (
    "length LENGTH max_tokens MAX_TOKENS FinishReason.MAX_TOKENS finish_reason_max_tokens "
    "maxTokens max_new_tokens maximum_tokens maxPredictedTokensReached contextLengthReached "
    "model_length model_context_window_exceeded token_limit limit ERROR_LIMIT incomplete "
    "truncated not_finished tokens_exhausted out_of_tokens"
)
FILTERED = (
    "content_filter CONTENT_FILTERED contentFilter SAFETY IMAGE_SAFETY RECITATION BLOCKLIST SPII "
    "PROHIBITED_CONTENT sensitive refusal refused guardrail_intervened ERROR_TOXIC MODEL_ARMOR "
    "high_risk jailbreak nsfw illegal profanity"
)
FAILED = (
    "error ERROR network_error abort aborted cancelled USER_CANCEL timeout time_limit rate_limit "
    "insufficient_system_resource modelUnloaded killed RESOURCE_EXHAUSTED out_of_memory"
)
UNUSABLE = (
    "tool_calls TOOL_CALL toolCalls tool_use function_call functionCall malformed_function_call "
    "MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL MALFORMED_RESPONSE"
)


def judged(reason: Any, content: str | None = "Fine.", *, verbatim: bool = False) -> object:
    body = completion(content, reason)
    return judge(Reply(200, {}, body), replace(FACTS, verbatim=verbatim))


@pytest.mark.parametrize("reason", [*WHOLE.split(), "", " ", None])
@pytest.mark.parametrize("verbatim", [False, True])
def test_a_whole_answer_is_taken_without_a_note(reason: str | None, verbatim: bool) -> None:  # noqa: FBT001
    """Each server has its own word for the end of an answer."""
    outcome = judged(reason, verbatim=verbatim)

    assert isinstance(outcome, Succeeded)
    assert outcome.oddities == ()


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("other", "other"),
        ("no_error", "no_error"),
        ("unfiltered", "unfiltered"),
        ("FINISH_REASON_UNSPECIFIED", "FINISH_REASON_UNSPECIFIED"),
        ("\u5b8c\u4e86", "\u5b8c\u4e86"),
        (1, "(int)"),
        (["stop"], "(list)"),
        ("new\x1b[2J\n" + "w" * 500, "new [2J " + "w" * 32),
    ],
)
@pytest.mark.parametrize("verbatim", [False, True])
def test_an_unknown_reason_is_no_error(reason: object, word: str, verbatim: bool) -> None:  # noqa: FBT001
    """The answer was paid for and nothing else is wrong with it; the word is safe to show."""
    outcome = judged(reason, verbatim=verbatim)

    assert isinstance(outcome, Succeeded)
    assert outcome.oddities == (f"finish_reason {word}",)


@pytest.mark.parametrize("content", ["Fin", None])
@pytest.mark.parametrize(
    ("reason", "error_class"),
    [
        *((word, "TOO_LONG") for word in [*CUT.split(), "finish: length limit reached"]),
        *((word, "FILTERED") for word in [*FILTERED.split(), "content_filter: PROHIBITED"]),
        *((word, "SERVER") for word in FAILED.split()),
        *((word, "BAD_OUTPUT") for word in UNUSABLE.split()),
    ],
)
def test_words_of_one_kind_mean_the_same(
    reason: str, error_class: str, content: str | None
) -> None:
    """Case, prefixes and suffixes do not matter; a cut or filtered answer costs one call."""
    outcome = judged(reason, content)

    assert isinstance(outcome, Dead if error_class in {"TOO_LONG", "FILTERED"} else Retry)
    assert outcome.failure.error_class == error_class
    assert outcome.failure.text.startswith(f"finish_reason {reason}")


@pytest.mark.parametrize(("reason", "is_taken"), [("MAX_TOKENS", True), ("ERROR", False)])
def test_a_verbatim_task_takes_all_but_a_broken_answer(reason: str, is_taken: bool) -> None:  # noqa: FBT001
    """The batch API too has cut and filtered answers as results."""
    assert isinstance(judged(reason, verbatim=True), Succeeded) is is_taken


def test_an_unknown_reason_is_named_when_there_is_no_answer() -> None:
    """The word may say why."""
    outcome = judged("something_new", None)

    assert isinstance(outcome, Retry)
    assert outcome.failure.text == "the answer is empty (finish_reason something_new)"

"""Prompts that a server has cut are found by its usage, and other odd usages are not."""

import base64
import hashlib
import logging
from collections.abc import Sequence

import orjson
import pytest

from docllm.agent.handlers.calls.cut_prompts import FEW, CountedCall, CutPrompts, least_tokens
from docllm.agent.quota.estimate import CallSize, Estimates
from docllm.schemas.codes import Code

ENGLISH = "The quarterly report says that sales rose by 4.2 percent in spring, as expected. "
CHINESE = "本季度的报告指出、春季销售额增长了百分之四点二、符合管理层此前的预期。"
HINDI = "तिमाही रिपोर्ट के अनुसार वसंत में बिक्री में चार प्रतिशत की वृद्धि हुई। "
THAI = "รายงานประจำไตรมาสระบุว่ายอดขายเพิ่มขึ้นร้อยละสี่ในช่วงฤดูใบไม้ผลิตามที่คาดไว้"
JSON = '{"name": "Ann", "amounts": [12.5, 7], "paid": true, "tags": ["a", "b"]}, '


def body(*texts: str, **params: object) -> bytes:
    messages = [{"role": "user", "content": text} for text in texts]
    return orjson.dumps({"model": "m", "messages": messages} | params)


def of_length(text: str, length: int) -> bytes:
    return body(text * (length // len(text.encode())))


def call(sent: bytes, tokens: int, route: str = "r", cached: int = 0) -> CountedCall:
    return CountedCall(route, "m", "document", sent, tokens, cached)


def found(calls: Sequence[CountedCall], ratios: Estimates | None = None) -> list[bool]:
    """Return which of these calls, one after another, are found; whole ones teach the ratio."""
    cut_prompts, ratios, cuts = CutPrompts(), ratios or Estimates(), []
    for made in calls:
        size = CallSize(task_type=made.task_type, input_bytes=len(made.body))
        used = made.model, size, made.tokens_in, 20
        is_odd = made.tokens_in in cut_prompts.limits or not ratios.learn(*used, few=FEW)
        cuts.append(is_odd and cut_prompts.is_cut(made, ratios))
        if is_odd and not cuts[-1]:
            ratios.learn(*used)
    return cuts


def learned(tokens_per_byte: float) -> Estimates:
    ratios = Estimates()
    for _ in range(5):
        size = CallSize(task_type="document", input_bytes=10_000)
        ratios.learn("m", size, round(10_000 * tokens_per_byte), 20)
    return ratios


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, HINDI, THAI, JSON])
@pytest.mark.parametrize("tokens", [2048, 2050, 4096, 4095, 3971])
def test_the_first_long_prompt_of_all_is_found(text: str, tokens: int) -> None:
    """Nothing was learned before, and the count need not be round."""
    assert found([call(of_length(text, 400_000), tokens)]) == [True]


def test_nothing_is_learned_if_all_prompts_are_cut() -> None:
    """Otherwise the usual ratio would fall until nothing is found any more."""
    lengths = [60_000, 120_000, 240_000] * 20

    assert all(found([call(of_length(ENGLISH, length), 4096) for length in lengths]))


@pytest.mark.parametrize("tokens", [2050, 4096])
def test_a_prompt_that_lost_a_third_is_found_near_a_round_number(tokens: int) -> None:
    """Each word is a token at least, so fewer tokens than words say it without a ratio."""
    length = tokens * 9  # bytes; English has six to a word

    assert found([call(of_length(ENGLISH, length), tokens)]) == [True]
    assert found([call(of_length(ENGLISH, length), tokens + 37)]) == [False]


def test_the_usual_limit_tells_of_a_prompt_that_lost_a_fifth() -> None:
    """Before anything is learned, four bytes a token are assumed beside such a count only."""
    sent = of_length(ENGLISH * 2 + "internationalization ", 24_000)

    assert found([call(sent, 4096)]) == [True]
    assert found([call(sent, 4096 + 256)]) == [False]


def test_a_count_that_repeats_is_a_limit() -> None:
    """A context of any size is found by the second prompt, which has another length."""
    lengths = [34_000, 52_000, 41_000]

    assert found([call(of_length(ENGLISH, length), 5_033) for length in lengths]) == [
        False,
        True,
        True,
    ]


def test_once_a_limit_is_known_a_slightly_longer_prompt_is_found() -> None:
    """The estimate alone would not tell 4,600 tokens from 4,096."""
    slightly = of_length("internationalization ", 4_600 * 5)
    calls = [call(of_length(ENGLISH, 200_000), 4096), call(slightly, 4096), call(slightly, 4081)]

    assert found(calls, learned(0.2)) == [True, True, False]


def test_the_learned_ratio_finds_what_words_do_not() -> None:
    """Code has few words for its tokens."""
    code = "x+=(y[i]-z[i])*(k-1)<<2;\n"
    sent = of_length(code, 30_000)

    assert found([call(sent, 8192)], learned(0.5)) == [True]
    assert found([call(sent, 14_000)], learned(0.5)) == [False]


def image(size: int) -> str:
    block = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(1_000))
    return base64.b64encode(block * (size // len(block) + 1)).decode()[:size]


@pytest.mark.parametrize("size", [50_000, 500_000, 3_000_000])
def test_images_say_nothing(size: int) -> None:
    """Images of any size have the same few tokens, often a round number."""
    parts = [
        {"type": "text", "text": ENGLISH},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image(size)}"}},
    ]
    sent = orjson.dumps({"messages": [{"role": "user", "content": parts}]})

    assert found([call(sent, 1024), call(sent + b" " * 9_000, 1024)]) == [False, False]


@pytest.mark.parametrize(
    ("sent", "tokens"),
    [
        (of_length(ENGLISH, 40_000), 8_900),  # as it should be
        (of_length(HINDI, 60_000), 6_144),  # ten bytes a token, and round
        (body("-" * 60_000), 1024),  # a line of dashes
        (body(" " * 60_000 + ENGLISH), 512),
        (body("." * 30 + "\n" + ENGLISH), 30),
        (of_length(ENGLISH, 200_000), 0),  # no usage
        (of_length(ENGLISH, 200_000), 2),  # no usage either
        (of_length(ENGLISH, 200_000), 10),  # no usage either: a server that makes it up
        (of_length(ENGLISH, 200_000), 700),  # the part of a prompt that was in no cache
        (of_length(ENGLISH, 900), 2048),
        (b'{"messages":[{"content":"' + b"\xff" * 40_000 + b'"}]}', 1024),  # nobody's JSON
        (orjson.dumps({"messages": {"content": ENGLISH * 900}}), 4096),
    ],
)
def test_odd_usages_are_no_cut(sent: bytes, tokens: int) -> None:
    assert found([call(sent, tokens)]) == [False]


def test_a_schema_is_no_part_of_the_prompt() -> None:
    """Many servers turn it into a grammar, which costs no token."""
    schema = {"properties": {f"field {n}": {"description": ENGLISH} for n in range(400)}}

    assert found([call(body(ENGLISH, response_format=schema), 1024)]) == [False]


def test_tokens_that_came_from_a_cache_say_nothing() -> None:
    """A gateway may leave out of `prompt_tokens` what it had cached."""
    assert found([call(of_length(ENGLISH, 200_000), 2048, cached=2048)]) == [False]


def test_different_remainders_of_cached_prompts_are_no_limit() -> None:
    """Documents behind a long common beginning have less than 1,000 tokens of their own."""
    prompt = ENGLISH * 400
    calls = [call(body(prompt + ENGLISH * n), 18 * n + 3) for n in range(20, 50, 3)]

    assert not any(found(calls))


def test_a_route_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    cut_prompts, ratios = CutPrompts(), Estimates()
    for route, tokens in (("r", 4096), ("other", 4096), ("r", 4096), ("r", 2050), ("other", 4096)):
        assert cut_prompts.is_cut(call(of_length(ENGLISH, 200_000), tokens, route), ratios)

    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.args[0] for record in warnings if isinstance(record.args, tuple)] == [
        "r",
        "other",
    ]
    assert {getattr(record, "code", None) for record in warnings} == {Code.INPUT_CUT}
    assert "OLLAMA_CONTEXT_LENGTH" in warnings[0].getMessage()


def test_a_large_request_is_looked_at_in_part() -> None:
    """A text of megabytes that was cut is found; what stands behind the first one is not read."""
    assert found([call(of_length(ENGLISH, 4_000_000), 4096)]) == [True]
    assert found([call(body("- " * 600_000 + ENGLISH * 20_000), 4096)]) == [False]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [(ENGLISH, 18), (CHINESE, 23), (HINDI, 30), (THAI, 30), (JSON, 30), ("", 0), ("don't", 3)],
)
def test_the_least_tokens_are_fewer_than_any_tokenizer_makes(text: str, tokens: int) -> None:
    """`tokens` is about what the most thrifty vocabularies of 200,000 and more tokens make."""
    assert least_tokens(text.encode()) <= tokens

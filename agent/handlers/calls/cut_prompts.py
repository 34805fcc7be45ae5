"""Finds answers to a part of their prompt, by the tokens that the server says it has read.

Some servers, such as Ollama, cut a prompt that is longer than their context, and say so nowhere.
The usage of such a call is far below what its texts need, and the same for prompts of any length,
often near a round number. Each sign alone may be chance: a gateway may leave cached tokens out, and
an image or a line of dashes needs few tokens for its bytes.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from docllm.agent.quota.estimate import LEAST_PER_BYTE, Estimates
from docllm.schemas.codes import Code
from docllm.schemas.settings.config import BYTES_PER_TOKEN
from docllm.schemas.text.untrusted import contained
from docllm.schemas.text.wording import one_line

log = logging.getLogger(__name__)

MAX_ROUTES = 1_000  # tasks name their models
_MIN_TOKENS = 256  # no server has a smaller context
_MIN_CERTAIN = 1_000  # fewer may be what a cache has left of a long prompt
_READ_BYTES = 1 << 20  # of a larger body only so much is looked at
_KEPT_COUNTS = 8
_ROUND = 256
_NEAR = 4  # Ollama may keep half of its context and two tokens more
# What is counted of a prompt that was cut, where nobody has set another size.
_USUAL_LIMITS = frozenset(2**power + more for power in range(10, 19) for more in (-1, 0, 2))
FEW = 0.7  # part of the usual tokens below which a call is looked at more closely
_AS_ESTIMATED = 1.2
_MAX_PER_WORD = 4
_OTHER_LENGTH = 1.1
_MAX_WORD = 1_000  # bytes; a longer one is an image
# A run of letters and digits is at least one token.
_NO_WORDS = bytes(byte for byte in range(128) if not (chr(byte).isalnum() or chr(byte) == "_"))
_WORDS = bytes.maketrans(_NO_WORDS, b" " * len(_NO_WORDS))
# First bytes of letters of scripts without spaces, in UTF-8: of Chinese and Japanese, whose letters
# are three to a token at most, and of Thai and its like.
_EAST_ASIAN = bytes(set(range(256)) - set(range(0xE3, 0xEA)))
_SOUTH_ASIAN = bytes(set(range(256)) - {0xE0, 0xE1})


class _SeenCounts:
    """What was counted for one model on one route."""

    def __init__(self) -> None:
        self.cut_at: int | None = None
        self.lengths: OrderedDict[int, int] = OrderedDict()  # of texts, by few tokens counted

    def repeats(self, tokens: int, length: int) -> bool:
        """Note a count; return whether a text of clearly another length had the same."""
        former = self.lengths.setdefault(tokens, length)
        if len(self.lengths) > _KEPT_COUNTS:
            self.lengths.popitem(last=False)
        return max(former, length) > _OTHER_LENGTH * min(former, length)


class CountedCall(NamedTuple):
    """A call that was answered, with what the server counted of its prompt."""

    route: str
    model: str
    task_type: str
    body: bytes
    tokens_in: int
    tokens_cached: int


class CutPrompts:
    """Finds prompts that their servers have cut, and warns once for each route and model.

    `limits` are the tokens that were last counted of a cut prompt, for all routes and models.
    """

    def __init__(self) -> None:
        self._routes: OrderedDict[tuple[str, str], _SeenCounts] = OrderedDict()
        self.limits: set[int] = set()

    def is_cut(self, call: CountedCall, ratios: Estimates) -> bool:
        """Return whether an answer is to a part of its request only.

        Ask only about a call with one of the `limits`, or with fewer tokens than FEW of the usual.
        `ratios` are the tokens per byte of earlier calls.
        """
        tokens_in, body = call.tokens_in, call.body
        kind = call.model, call.task_type
        usual = len(body) * max(ratios.tokens_per_byte(*kind), LEAST_PER_BYTE)
        if tokens_in < _MIN_TOKENS or call.tokens_cached >= tokens_in:
            return False  # nothing can be told: a gateway may leave out what it had in its cache
        route, model = call.route, call.model
        seen = self._routes.setdefault((route, model), _SeenCounts())
        if len(self._routes) > MAX_ROUTES:
            self._routes.popitem(last=False)
        if seen.cut_at == tokens_in and tokens_in < _AS_ESTIMATED * usual:
            return True
        text = _text(body)
        if not _is_few(tokens_in, text, ratios.learned_per_byte(*kind), seen):
            return False
        if seen.cut_at is None:
            _warn(route, model, tokens_in, len(text))
        if seen.cut_at != tokens_in:
            seen.cut_at = tokens_in
            self.limits = {seen.cut_at for seen in self._routes.values() if seen.cut_at}
        return True


def cut_text(tokens_in: int, body: bytes) -> str:
    """Return why a task fails whose input was cut."""
    return (
        f"the server has cut the prompt: it counted {tokens_in:,} tokens of a request of "
        f"{len(body):,} bytes; raise its context (Ollama: OLLAMA_CONTEXT_LENGTH or num_ctx)"
    )


def _is_few(tokens_in: int, text: bytes, learned_per_byte: float, seen: _SeenCounts) -> bool:
    """Return whether the texts of a request must have more tokens than the server counted."""
    least = least_tokens(text)
    if tokens_in >= _MIN_CERTAIN and 2 * tokens_in < least:
        return True
    if tokens_in > _MAX_PER_WORD * least:
        return False  # not a text, but lines of dashes or the like
    if not learned_per_byte and tokens_in in _USUAL_LIMITS:
        learned_per_byte = 1 / BYTES_PER_TOKEN
    if tokens_in >= max(least, FEW * learned_per_byte * len(text)):
        return False
    is_near_round = (tokens_in + _NEAR) % _ROUND <= 2 * _NEAR
    return seen.repeats(tokens_in, len(text)) or is_near_round


def least_tokens(text: bytes) -> int:
    """Return fewer tokens than any usual tokenizer makes of a text in UTF-8."""
    words = len(text.translate(_WORDS).split())
    east_asian = len(text.translate(None, _EAST_ASIAN))
    south_asian = len(text.translate(None, _SOUTH_ASIAN))
    return words + east_asian // 4 + south_asian // 12


def _text(body: bytes) -> bytes:
    """Return the texts of a request's messages, without its images, parameters and schema.

    Of a large body, the beginning stands for all: too little for some, too much for none.
    """
    if len(body) > _READ_BYTES:
        words = body[:_READ_BYTES].split()
        return b" ".join([word for word in words if len(word) <= _MAX_WORD])
    try:
        with contained():
            texts = list(_texts(orjson.loads(body).get("messages")))
            return "\n".join(texts).encode("utf-8", "replace")
    except Exception:  # noqa: BLE001 - strangers wrote it; the server has taken it all the same
        return b""


def _texts(messages: Any) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            yield content
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]


def _warn(route: str, model: str, tokens_in: int, length: int) -> None:
    log.warning(
        "route %s: the server has cut a prompt: of a text of %s bytes it counted %s tokens for "
        "model %s; raise its context (Ollama: OLLAMA_CONTEXT_LENGTH, or num_ctx in the Modelfile) "
        "and set context_tokens. Exports mark such results with truncated_input; "
        "whole_input = true makes their tasks dead",
        one_line(route),
        f"{length:,}",
        f"{tokens_in:,}",
        one_line(model) or "(none)",
        extra={"code": Code.INPUT_CUT},
    )

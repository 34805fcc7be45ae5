"""Estimates a call's charge from the charges of earlier calls of its kind.

Pure. Once the reply reports the call's usage, the estimate is corrected in the grant store.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass

from docllm.agent.quota.grants import Charge
from docllm.schemas.settings.config import BYTES_PER_TOKEN
from docllm.schemas.settings.quota import ChargeRule, QuotaLimits
from docllm.schemas.task.task_types import DOCUMENT

MAX_KINDS = 1000  # tasks name their models, and so their routes
FIRST_OUT = 500  # tokens assumed for an answer before any was seen
_KEPT = 64
_QUANTILE = 0.75
_WEIGHT = 0.1  # how much the newest call counts in the learned tokens per byte
# One reply raises what is learned no further than by this factor, so that a reply with a nonsense
# usage is forgotten after some calls, not after hours of one call a minute.
_MAX_GROWTH = 256
_MIN_BYTES = 64
LEAST_PER_BYTE = 1 / 12  # what was learned from images says nothing of texts
_FEW_KNOWN = 5  # calls from which on the learned tokens per byte can be relied on


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSize:
    """The size of a call, as far as it is known before the call.

    `most_out` is how many tokens its answer may have, None if the task leaves that to the provider.
    `by_uri` means that the document is read from elsewhere, perhaps in another format.
    """

    task_type: str = DOCUMENT
    input_bytes: int = 0
    most_out: int | None = None
    by_uri: bool = False


class _CallKind:
    """The token ratio and the answers of one kind of call, from calls that ended."""

    def __init__(self) -> None:
        self.tokens_per_byte = 1 / BYTES_PER_TOKEN
        self.known = 0
        self.answers: deque[int] = deque(maxlen=_KEPT)

    def learn(self, input_bytes: int, tokens_in: int, tokens_out: int, few: float) -> bool:
        usual, ratio = self.tokens_per_byte, tokens_in / max(_MIN_BYTES, input_bytes)
        if ratio < few * usual or ratio < few * LEAST_PER_BYTE:
            return False
        if ratio > usual:
            ratio = min(ratio, _MAX_GROWTH * max(usual, 1 / BYTES_PER_TOKEN))
        self.known += 1
        weight = _WEIGHT if self.known * _WEIGHT >= 1 else 1 / self.known
        self.tokens_per_byte += weight * (ratio - usual)
        self.answers.append(tokens_out)
        return True

    @property
    def answer(self) -> int:
        """How long most answers are."""
        if not self.answers:
            return FIRST_OUT
        return sorted(self.answers)[int(_QUANTILE * (len(self.answers) - 1))]


class Estimates:
    """The estimates of one agent, by route, type of task, and where its documents are."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[tuple[str, str, bool], _CallKind] = OrderedDict()

    def charge(self, route: str, size: CallSize, limits: QuotaLimits) -> Charge:
        """Return what a call will be charged, at most what the limits allow in a minute.

        A larger estimate would never be granted.
        """
        kind = self._kinds.get((route, size.task_type, size.by_uri)) or _CallKind()
        tokens_in = round(max(_MIN_BYTES, size.input_bytes) * kind.tokens_per_byte)
        if size.most_out is None:
            tokens_out = kind.answer
        elif limits.charge is ChargeRule.INPUT_THEN_OUTPUT:
            tokens_out = min(size.most_out, kind.answer)
        else:
            tokens_out = size.most_out
        return _capped(Charge(tokens_in=tokens_in, tokens_out=tokens_out), limits)

    def tokens_per_byte(self, route: str, task_type: str) -> float:
        """Return how many tokens a byte of such requests has."""
        return (self._kinds.get((route, task_type, False)) or _CallKind()).tokens_per_byte

    def learned_per_byte(self, route: str, task_type: str) -> float:
        """Return the same, or 0 before some such requests have been answered."""
        kind = self._kinds.get((route, task_type, False))
        return 0.0 if kind is None or kind.known < _FEW_KNOWN else kind.tokens_per_byte

    def learn(
        self, route: str, size: CallSize, tokens_in: int, tokens_out: int, *, few: float = 0.0
    ) -> bool:
        """Learn what a call used, unless its input had less than `few` of the usual tokens.

        Return whether it was learned.
        """
        key = route, size.task_type, size.by_uri
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _CallKind()
            if len(self._kinds) > MAX_KINDS:
                self._kinds.popitem(last=False)
        else:
            self._kinds.move_to_end(key)
        return kind.learn(size.input_bytes, tokens_in, tokens_out, few)


def actual_charge(size: CallSize, limits: QuotaLimits, tokens_in: int, tokens_out: int) -> Charge:
    """Return what a call is charged in the end, by the tokens that its answer names."""
    if limits.charge is ChargeRule.MAX_KEPT and size.most_out is not None:
        tokens_out = max(tokens_out, size.most_out)
    return Charge(tokens_in=tokens_in, tokens_out=tokens_out)


def _capped(charge: Charge, limits: QuotaLimits) -> Charge:
    tokens_in, tokens_out = charge.tokens_in, charge.tokens_out
    for limit in (limits.itpm, limits.tpm):
        tokens_in = tokens_in if limit is None else min(tokens_in, limit)
    if limits.otpm is not None:
        tokens_out = min(tokens_out, limits.otpm)
    if limits.tpm is not None:
        tokens_out = min(tokens_out, limits.tpm - tokens_in)
    return Charge(tokens_in=tokens_in, tokens_out=tokens_out)

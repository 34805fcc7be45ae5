"""Answers that were paid and not settled: kept in memory for their tasks' next claims."""

from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.ports.outcome import Succeeded


class KeptAnswers:
    """Bounds the number and the bytes of the kept answers; the oldest ones are dropped."""

    def __init__(self, limits: InFlightLimits) -> None:
        self._limits = limits
        self._bytes: dict[Delivery, int] = {}  # in the order of their last settle

    def keep(self, delivery: Delivery, answer: Succeeded) -> int:
        """Keep an answer for its task's next claim; return how many others are dropped."""
        kept, limits = self._bytes, self._limits
        kept.pop(delivery, None)
        kept[delivery] = len(answer.body)
        delivery.kept_answer = answer
        dropped = 0
        while len(kept) > limits.kept_answers or sum(kept.values()) > limits.kept_answers_bytes:
            oldest = next(iter(kept))
            del kept[oldest]
            oldest.kept_answer = None
            dropped += 1
        return dropped

    def forget(self, delivery: Delivery) -> None:
        """Drop the answer of a delivery, if it has one."""
        delivery.kept_answer = None
        self._bytes.pop(delivery, None)

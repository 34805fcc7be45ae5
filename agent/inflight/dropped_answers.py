"""Counts paid answers that are dropped before they are stored; their calls are paid again."""

import logging

from docllm.schemas.codes import Code
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.outage import LogLimit
from docllm.schemas.text.wording import number_of

log = logging.getLogger(__name__)


class DroppedAnswers:
    """Logs the number of dropped answers, at most once a minute, and once at the end."""

    def __init__(self, clock: Clock) -> None:
        self._log_limit = LogLimit(clock)
        self._unlogged = 0

    def add(self, number: int) -> None:
        """Count dropped answers; log those since the last line if a line may be logged."""
        self._unlogged += number
        if self._unlogged and self._log_limit.permits():
            self.log_rest()

    def log_rest(self) -> None:
        """Log the answers that no line has counted, if there are any."""
        if self._unlogged:
            log.warning(
                "dropped %s, because too many waited to be stored or their partitions were "
                "revoked; the calls are made again",
                number_of(self._unlogged, "paid answer"),
                extra={"code": Code.ANSWERS_DROPPED},
            )
            self._unlogged = 0

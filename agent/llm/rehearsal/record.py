"""The rehearsal LLM's memory of its calls: counts for `/stats`, and a log.

A checker can compare the log with the ledger.
"""

from collections import Counter
from typing import BinaryIO

import orjson

from docllm.schemas.runtime.clock import Clock


class CallRecord:
    """Counts of calls, and their log.

    `log` is an unbuffered file to which every start and end is appended, so that a kill loses
    nothing.
    """

    def __init__(self, *, clock: Clock, log: BinaryIO | None) -> None:
        self._clock = clock
        self._log = log
        self.calls: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.in_flight = 0

    def start(self, request_id: str, path: str) -> int:
        """Record the start of a call; return how many calls of its task have started so far.

        The task is the part of the request id before `#`.
        """
        name = request_id.partition("#")[0]
        self.calls[name] += 1
        self.in_flight += 1
        self._write("start", request_id, path=path)
        return self.calls[name]

    def end(
        self,
        request_id: str,
        status: int,
        sent_bytes: int,
        fault: str | None,
        *,
        tokens_in: int = 0,
        tokens_out: int = 0,
    ) -> None:
        """Note how a call ended; status 0 means that no whole answer was sent.

        `fault` may also be the limit that refused the call. The tokens are those that count toward
        the limits.
        """
        self.in_flight -= 1
        self.statuses[str(status)] += 1
        if fault is not None:
            self.faults[fault] += 1
        self._write(
            "end",
            request_id,
            status=status,
            bytes=sent_bytes,
            fault=fault,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
        )

    def as_json(self) -> bytes:
        """Return the counts."""
        totals = {"total": self.calls.total(), "in_flight": self.in_flight}
        return orjson.dumps(
            {**totals, "statuses": self.statuses, "faults": self.faults, "calls": self.calls}
        )

    def _write(self, event: str, request_id: str, **facts: object) -> None:
        if self._log is None:
            return
        times = {"at_s": self._clock.utc_s(), "boot_s": self._clock.now_s()}
        self._log.write(
            orjson.dumps(
                {"event": event, "id": request_id, **facts, **times},
                option=orjson.OPT_APPEND_NEWLINE,
            )
        )

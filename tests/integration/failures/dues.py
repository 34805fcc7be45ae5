"""Watches a ledger during a run for when each retry is due.

The ledger itself forgets that at the next claim.
"""

import threading
from types import TracebackType
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from tests.integration.support.ledgers import LedgerView

CHECK_EVERY_S = 0.3  # far below the shortest tier, so that no due time is missed


class DueWatch:
    """Looks at the ledger from a thread of its own while the block runs.

    `dues` maps task and number of the attempt to UTC seconds.
    """

    def __init__(self, ledger: LedgerView) -> None:
        self.dues: dict[tuple[str, int], float] = {}
        self._ledger = ledger
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(CHECK_EVERY_S):
            try:
                self.dues |= self._ledger.dues()
            except SQLAlchemyError:
                continue  # a busy database; the next look sees it

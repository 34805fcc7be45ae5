"""The records of a task that came after its first one: they wait behind it, in their order."""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

from docllm.agent.inflight.delivery import Delivery, DeliveryState


class RecordsBehind:
    """Keeps the records behind each task's first delivery until it ends or takes them with it."""

    def __init__(self) -> None:
        self.by_task: dict[int, deque[Delivery]] = {}  # only tasks that have such records

    def __iter__(self) -> Iterator[Delivery]:
        return chain.from_iterable(self.by_task.values())

    def put(self, delivery: Delivery) -> None:
        """Put a record behind those that its task has already."""
        delivery.state = DeliveryState.BEHIND
        self.by_task.setdefault(delivery.task_id, deque()).append(delivery)

    def pop_next(self, task_id: int) -> Delivery | None:
        """Remove the next record of a task and return it; None if no record is behind."""
        behind = self.by_task.get(task_id)
        if behind is None:
            return None
        while behind and behind[0].state is DeliveryState.ENDED:
            behind.popleft()
        if not behind:
            self.by_task.pop(task_id, None)
            return None
        return behind.popleft()

    def alike(self, delivery: Delivery) -> Iterator[Delivery]:
        """Yield the records behind a delivery that have its key and value."""
        for behind in self.by_task.get(delivery.task_id, ()):
            if is_alike(delivery, behind):
                yield behind

    def take_copies(self, delivery: Delivery, fence: int) -> list[Delivery]:
        """Take the queued copies of a delivery's task, up to this fence.

        A record without a value is a copy of any record. A record with another value only names the
        same task, and the ledger must be asked about it.
        """
        return self._take(
            delivery,
            lambda behind: (
                behind.digest in {None, delivery.digest} and behind.publication.fence <= fence
            ),
        )

    def take_foreign(self, delivery: Delivery) -> list[Delivery]:
        """Take the records behind a known delivery that have another value.

        The ledger knows the delivery, so these foreign records only name its task.
        """
        return self._take(
            delivery,
            lambda behind: (
                delivery.digest is not None and behind.digest not in {None, delivery.digest}
            ),
        )

    def take_alike(self, delivery: Delivery) -> list[Delivery]:
        """Take queued copies of a foreign record: same key and value, same or higher fence."""
        return self._take(
            delivery,
            lambda behind: (
                is_alike(delivery, behind)
                and behind.publication.fence >= delivery.publication.fence
            ),
        )

    def _take(self, delivery: Delivery, matches: Callable[[Delivery], bool]) -> list[Delivery]:
        behind = self.by_task.get(delivery.task_id)
        if not behind:
            return []
        records = [
            record
            for record in behind
            if record.state is DeliveryState.BEHIND and record is not delivery and matches(record)
        ]
        if records:
            without = set(records)
            self.by_task[delivery.task_id] = deque(
                record for record in behind if record not in without
            )
        return records


def is_alike(delivery: Delivery, other: Delivery) -> bool:
    """Return whether two records have the same key and value; False for one without a value."""
    return delivery.digest is not None and delivery.digest == other.digest

"""Assigns partitions to members: loads differ by at most one, with the fewest moves. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AssignablePartition:
    """A partition to assign.

    `holder` is the member that has the partition or was promised it.
    """

    partition_id: int
    topic_id: str
    holder: str | None


def balance(
    partitions: Sequence[AssignablePartition], subscriptions: Mapping[str, set[str]]
) -> dict[int, str | None]:
    """Return the member for each partition id, None where nobody subscribes to its topic.

    `subscriptions` maps each living member to its topic ids. The same input gives the same answer
    in every process.
    """
    loads = dict.fromkeys(sorted(subscriptions), 0)
    heirs: dict[int, str | None] = {}
    for partition in partitions:
        is_subscribed = partition.topic_id in subscriptions.get(partition.holder or "", ())
        heirs[partition.partition_id] = partition.holder if is_subscribed else None
        _count(loads, heirs[partition.partition_id], 1)
    for partition in partitions:
        if heirs[partition.partition_id] is None:
            heirs[partition.partition_id] = _least(loads, partition, subscriptions)
            _count(loads, heirs[partition.partition_id], 1)
    while _improve(loads, partitions, heirs, subscriptions):
        pass
    return heirs


def _count(loads: dict[str, int], member: str | None, change: int) -> None:
    if member is not None:
        loads[member] += change


def _least(
    loads: Mapping[str, int], partition: AssignablePartition, subscriptions: Mapping[str, set[str]]
) -> str | None:
    subscribers = [member for member in loads if partition.topic_id in subscriptions[member]]
    return min(subscribers, key=loads.__getitem__, default=None)


def _improve(
    loads: dict[str, int],
    partitions: Sequence[AssignablePartition],
    heirs: dict[int, str | None],
    subscriptions: Mapping[str, set[str]],
) -> bool:
    """Move one partition across the widest gap in load; return False if no gap is two or more.

    Each move makes the loads more even, so the moves come to an end.
    """
    widest, move = 1, None
    for partition in partitions:
        heir, least = heirs[partition.partition_id], _least(loads, partition, subscriptions)
        if heir is not None and least is not None and loads[heir] - loads[least] > widest:
            widest, move = loads[heir] - loads[least], (partition.partition_id, heir, least)
    if move is None:
        return False
    partition_id, heir, least = move
    heirs[partition_id] = least
    _count(loads, heir, -1)
    _count(loads, least, 1)
    return True

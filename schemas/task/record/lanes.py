"""Lanes: the topics in which tasks of one urgency wait for their first attempt. Pure."""

from enum import IntEnum

DEFAULT_PRIORITY = 5
_URGENT_FROM, _NORMAL_FROM = 7, 4  # priorities


class Lane(IntEnum):
    """A lane, as a task's row stores it."""

    NORMAL = 0
    URGENT = 1
    BULK = 2

    @property
    def destination(self) -> str:
        """The lane's topic without the group; the normal one is `tasks`."""
        return _DESTINATION_OF[self]

    @property
    def word(self) -> str:
        """The lane's name, for a person."""
        return self.name.lower()


_DESTINATION_OF = {lane: "tasks" if lane is Lane.NORMAL else f"tasks.{lane.word}" for lane in Lane}
MAIN = Lane.NORMAL.destination
# In the order in which a person reads them, the most urgent first.
DESTINATIONS = tuple(lane.destination for lane in (Lane.URGENT, Lane.NORMAL, Lane.BULK))
# The share of each lane: of every 21 tasks that start while all lanes have work.
TURNS = {Lane.URGENT: 16, Lane.NORMAL: 4, Lane.BULK: 1}
_BY_NUMBER = {int(lane): lane for lane in Lane}


def lane_for(priority: int) -> Lane:
    """Return the lane of a task with this priority."""
    if priority >= _URGENT_FROM:
        return Lane.URGENT
    return Lane.NORMAL if priority >= _NORMAL_FROM else Lane.BULK


def known_lane(number: int) -> Lane:
    """Return the lane that a row stores; a newer version's lane is `NORMAL`."""
    return _BY_NUMBER.get(number, Lane.NORMAL)

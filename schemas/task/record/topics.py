"""The names of a group's topics."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from docllm.schemas.errors import ConfigError
from docllm.schemas.task.record import lanes

GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DEFAULT_TIERS = ("30s", "5m", "1h")
RESULTS = "results"  # the destination of the lines of tasks that have ended
_TIER = "retry."
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration_s(text: str) -> int:
    """Return the seconds of a duration such as `30s`, `5m`, `1h`.

    Raises ConfigError for any other text.
    """
    if re.fullmatch(r"[1-9][0-9]{0,5}[smhd]", text) is None:
        raise ConfigError(
            f"{text!r} is not a duration; write a number and s, m, h or d, for example 30s"
        )
    return int(text[:-1]) * _UNIT_S[text[-1]]


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one group.

    A destination is a topic's name without the group: `tasks`, `tasks.bulk`, `retry.30s`, `dlq`,
    `inbox`, `results`. `old_tiers` are tiers of another configuration: their topics are read as
    long as they exist, and nothing new is put on them. `results`: the group has a topic of results.
    """

    group: str
    tiers: tuple[str, ...] = DEFAULT_TIERS
    old_tiers: tuple[str, ...] = ()
    results: bool = False

    def __post_init__(self) -> None:
        if GROUP_NAME.fullmatch(self.group) is None:
            raise ConfigError(
                f"group {self.group!r}: use 1 to 100 letters, digits, dots, dashes and underscores"
            )

    @property
    def destinations(self) -> tuple[str, ...]:
        """Every destination of the group."""
        results = (RESULTS,) if self.results else ()
        return (*lanes.DESTINATIONS, *self.tier_destinations, "dlq", "inbox", *results)

    @property
    def lanes(self) -> dict[str, lanes.Lane]:
        """The lanes by Kafka topic."""
        return {self.name(lane.destination): lane for lane in lanes.Lane}

    @property
    def tier_destinations(self) -> tuple[str, ...]:
        """The destinations in which tasks wait for their next attempt, old ones included."""
        return tuple(f"{_TIER}{tier}" for tier in (*self.tiers, *self.old_tiers))

    def is_old(self, name: str) -> bool:
        """Return whether a Kafka topic belongs to an old tier."""
        return self.destination(name).removeprefix(_TIER) in self.old_tiers

    def with_old_tiers(self, names: Iterable[str]) -> "Topics":
        """Return the same topics, with the old tiers found among these Kafka topics.

        An old tier is a tier of this group under another configuration.
        """
        prefix = self.name(_TIER)
        tiers = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        old = sorted((tier for tier in tiers if tier not in self.tiers), key=duration_s)
        return replace(self, old_tiers=tuple(old))

    def name(self, destination: str) -> str:
        """Return the Kafka topic of a destination."""
        return f"{self.group}.{destination}"

    @property
    def names(self) -> tuple[str, ...]:
        """Every Kafka topic of the group."""
        return tuple(self.name(destination) for destination in self.destinations)

    def consumer_group(self, destination: str) -> str:
        """Return the Kafka group id that reads a destination: each has its own consumer handle.

        Kafka's assignor counts partitions, whatever their topic. If one handle read several topics,
        an agent could get the partitions of an empty topic alone, and idle.
        """
        return self.group if destination == lanes.MAIN else self.name(destination)

    def destination(self, topic: str) -> str:
        """Return the destination of a Kafka topic of this group."""
        return topic.removeprefix(f"{self.group}.")

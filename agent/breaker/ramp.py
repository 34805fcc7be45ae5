"""Slow start: after a stop or a refusal one call goes first, and each success lets twice as many run. Pure."""


class Ramp:
    """How many calls may run at once on a route that takes calls."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._allowed = slots

    @property
    def allowed(self) -> int | None:
        """Return how many calls may run; None when there is no limit but the slots."""
        return self._allowed if self._allowed < self._slots else None

    def restart(self) -> None:
        """Begin with one call."""
        self._allowed = 1

    def grow(self) -> None:
        """Take a success."""
        self._allowed = min(self._slots, self._allowed * 2)

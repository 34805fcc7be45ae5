"""The limits that handlers name: the port that lets their uses begin."""

from typing import Protocol

from docllm.agent.quota.limit import Permit


class LimitError(ValueError):
    """A handler names a limit that the settings do not have."""


class NamedLimits(Protocol):
    """The limits of the settings' sections `[limits.NAME]`."""

    async def wait_for_use(self, name: str, wait_s: float) -> Permit | None:
        """Return the permit of a use; None if none may begin within `wait_s`.

        Raises LimitError for an unknown name.
        """
        ...

    def end_use(self, permit: Permit) -> None:
        """Give the permit of a use back."""
        ...

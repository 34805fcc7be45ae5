"""The routes that are labels of metrics: those of the settings, and one name for all others."""

from collections.abc import Iterable

from docllm.producer.ledger.status.group_sums import OTHER
from docllm.schemas.settings.config import DEFAULT_ROUTE


class RouteLabels:
    """Maps routes to labels; tasks may name any route, and metrics must not grow with them.

    The first `most` names are labels of their own, in the order of the settings.
    """

    def __init__(self, configured: Iterable[str], *, most: int = 12) -> None:
        names = dict.fromkeys((DEFAULT_ROUTE, *configured))
        self._names = frozenset(list(names)[:most])

    def label(self, route: str) -> str:
        """Return the label of a route. Tasks of the default route may have no route yet."""
        return route if route in self._names else DEFAULT_ROUTE if not route else OTHER

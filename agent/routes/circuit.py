"""Decides by the outcomes of its calls whether a route is stopped. Pure.

pybreaker is the state machine (`docllm.agent.routes.breaker`): which outcome opens, half-opens or
closes it, and who is told. While nothing has failed there is none, and an answer only joins the
window.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from docllm.agent.routes.window import OutcomeWindow

if TYPE_CHECKING:
    from docllm.agent.routes.breaker import Breaker


class Circuit:
    """Decides by reported outcomes whether the route is stopped.

    `changed` is called each time this changes. It must not raise.
    """

    def __init__(self, *, window: OutcomeWindow, changed: Callable[[bool], None]) -> None:
        self._window = window
        self._changed = changed
        self._made: Breaker | None = None

    @property
    def stopped(self) -> bool:
        """Whether the route is stopped: it takes no calls but probes."""
        return self._made is not None and self._made.stopped

    def report(self, now_s: float, *, failed: bool) -> None:
        """Note a finished outcome.

        While the route is stopped, the outcome is that of a probe: it decides whether calls pass
        again.
        """
        if failed or self.stopped:
            self._breaker.report(now_s, failed=failed)
        else:
            self._window.add(now_s, failed=False)  # all that pybreaker would do

    def stop(self) -> None:
        """Stop the route, whatever the window says."""
        self._breaker.stop()

    def resume(self) -> None:
        """Let calls pass again: the route is open, which pybreaker calls a closed breaker."""
        self._breaker.resume()

    @property
    def _breaker(self) -> "Breaker":
        if self._made is None:
            # It imports much, which an agent needs at its first failure only.
            from docllm.agent.routes.breaker import Breaker  # noqa: PLC0415

            self._made = Breaker(window=self._window, changed=self._changed)
        return self._made

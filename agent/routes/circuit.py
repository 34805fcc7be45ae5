"""The state of one breaker: whether it stops its route. The window of outcomes decides. Pure.

It knows no time, so nothing here depends on the machine's clock: the route paces the probes.
"""

from collections.abc import Callable

from docllm.agent.routes.window import OutcomeWindow


class Circuit:
    """Decides by reported outcomes whether the route is stopped.

    `changed` is called each time this changes. It must not raise.
    """

    def __init__(self, *, window: OutcomeWindow, changed: Callable[[bool], None]) -> None:
        self._window = window
        self._changed = changed
        self.stopped = False  # it takes no calls but probes

    def report(self, now_s: float, *, failed: bool) -> None:
        """Note a finished outcome.

        While the route is stopped, the outcome is that of a probe: a good one lets calls pass
        again.
        """
        if self.stopped:
            if not failed:
                self.resume()
            return
        self._window.add(now_s, failed=failed)
        if failed and self._window.is_bad:
            self.stop()

    def stop(self) -> None:
        """Stop the route, whatever the window says."""
        self._set(stopped=True)

    def resume(self) -> None:
        """Let calls pass again."""
        self._set(stopped=False)

    def _set(self, *, stopped: bool) -> None:
        """Begin with an empty window; report a change."""
        self._window.clear()
        if stopped is not self.stopped:
            self.stopped = stopped
            self._changed(stopped)

"""Keeps an admin client, and opens a new one when no broker has answered it for a while.

A broker that its controller considers lost returns an empty broker list. An admin client that
receives such a list at the wrong moment drops its connections and opens no others, even long after
the broker has recovered (librdkafka 2.16, issue 5301).
"""

import logging
import threading
from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.clock import Clock

log = logging.getLogger(__name__)

# Longer than any request. So when a client is replaced, the client before it has no open request.
SILENCE_S = 20.0


class RenewedAdmin:
    """The admin client to use now. Callers must report whether each question was answered."""

    def __init__(self, *, opened: Callable[[], AdminClient], clock: Clock) -> None:
        self._opened = opened
        self._clock = clock
        self.client = opened()
        # The replaced client is kept: a garbage-collected client would never answer its open
        # requests.
        self._before: AdminClient | None = None
        self._answered_at_s = clock.now_s()

    def answered(self) -> None:
        """Note that a broker answered."""
        self._answered_at_s = self._clock.now_s()

    def unanswered(self) -> None:
        """Replace the client when no broker has answered for SILENCE_S."""
        silent_s = self._clock.now_s() - self._answered_at_s
        if silent_s < SILENCE_S:
            return
        try:
            client = self._opened()
        except ConfigError as error:  # a TLS file may be in the middle of a replacement
            log.warning("the client is kept: %s", error)
            return
        log.debug("no broker has answered for %.0f s: the client is opened anew", silent_s)
        retired, self._before, self.client = [self._before], self.client, client
        self._answered_at_s = self._clock.now_s()
        # Garbage-collecting a client waits for its threads.
        threading.Thread(target=retired.clear, name="admin-close", daemon=True).start()

"""Keeps an admin client, and opens it anew when nothing has answered it for a while.

A broker that its controller takes for lost answers that there are no brokers. An admin client that hears this at the wrong moment
gives up its connections and looks for no others, also when the broker is long back (librdkafka 2.16, issue 5301 there).
"""

import logging
import threading
from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from schemas.clock import Clock
from schemas.errors import ConfigError

_log = logging.getLogger("docllm.kafka.admin")

SILENCE_S = 20.0  # longer than any question may take, so that a client has none under way when the one after it is replaced


class Renewal:
    """The client to ask now. It must be told what became of each question."""

    def __init__(self, *, opened: Callable[[], AdminClient], clock: Clock) -> None:
        self._opened = opened
        self._clock = clock
        self.client = opened()
        self._before: AdminClient | None = None  # answers of one that is collected never come
        self._answered_s = clock.now_s()

    def answered(self) -> None:
        """Note that a broker answered."""
        self._answered_s = self._clock.now_s()

    def unanswered(self) -> None:
        """Open the client anew when no broker has answered for a while."""
        silent_s = self._clock.now_s() - self._answered_s
        if silent_s < SILENCE_S:
            return
        try:
            client = self._opened()
        except ConfigError as error:  # a file of TLS that is just being replaced
            _log.warning("the client is kept: %s", error)
            return
        _log.info("no broker has answered for %.0f s: the client is opened anew", silent_s)
        old, self._before, self.client = [self._before], self.client, client
        self._answered_s = self._clock.now_s()
        # Collecting a client waits for its threads.
        threading.Thread(target=old.clear, name="admin-close", daemon=True).start()

"""An executor on virtual time: a call runs on the loop after a delay.

Its answer arrives after another delay.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from docllm.schemas.runtime.clock import Clock
from tests.simulation.store import AwayError
from tests.simulation.weather import Weather

Result = TypeVar("Result")
_USUAL_S = 0.004
_TRY_EVERY_S = 1.0  # a server that is away is tried again at least this often


class SimExecutor:
    """A few threads' worth of database calls: one by default.

    As on a real thread, cancelling the caller does not end a call that has begun.
    """

    def __init__(
        self, *, weather: Weather, clock: Clock, patient: bool = True, threads: int = 1
    ) -> None:
        self._weather = weather
        self._clock = clock
        self._patient = patient  # a heartbeat's driver does not wait long for an answer
        self._waiting: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._free = threads

    def __call__(self, call: Callable[[], Result]) -> Awaitable[Result]:
        """Return the result of `call`, or raise its error."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, answer))
        if self._free:
            self._free -= 1
            self._next()
        return answer

    def _next(self) -> None:
        """Let a thread take the next call; without one it is free."""
        while self._waiting:
            call, answer = self._waiting.popleft()
            if not answer.done():
                self._later(self._weather.delay_s("database", _USUAL_S), self._run, call, answer)
                return
        self._free += 1

    def _later(self, delay_s: float, what: Callable[..., None], *args: Any) -> None:
        asyncio.get_running_loop().call_later(delay_s, what, *args)

    # A callback.
    def _run(
        self,
        call: Callable[[], Any],
        answer: asyncio.Future[Any],
        again: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        try:
            result, error = call(), None
        except AwayError:
            away_s = self._weather.away_s("database", self._clock.now_s())
            self._later(min(away_s, _TRY_EVERY_S) + 0.001, self._run, call, answer, again)
            return
        except Exception as raised:  # noqa: BLE001 - the caller gets it
            result, error = None, raised
        if error is None and self._patient and not again and self._weather.strikes("answer_lost"):
            # The transaction was committed and its answer lost. It runs again once the server is
            # back.
            # A callback.
            self._later(self._weather.rng.choice((0.1, 1.0, 16.0)), self._run, call, answer, True)  # noqa: FBT003
        else:
            self._later(
                self._weather.delay_s("database", _USUAL_S), self._answer, answer, result, error
            )

    def _answer(self, answer: asyncio.Future[Any], result: object, error: Exception | None) -> None:
        if not answer.done():
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)
        self._next()

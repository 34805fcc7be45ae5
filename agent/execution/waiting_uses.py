"""The uses of named limits for which handlers wait: the port `NamedLimits` of one agent."""

import asyncio
from collections import deque

from docllm.agent.handlers.named_limits import LimitError
from docllm.agent.ports import Clock
from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.agent.quota.estimate import CallSize
from docllm.agent.quota.grants import LimitKind, WaitingCall
from docllm.agent.quota.limit import NOTHING, Permit
from docllm.agent.quota.quotas import Quotas

# Within this time a use that is asked for gets its answer, if the grant store is well. It is asked
# about twice a second, and after a pause it first learns for a second what runs.
ONE_ANSWER_S = 2.5


class WaitingUses:
    """Begins uses in the order of asking, as soon as their limits have room."""

    def __init__(self, *, quotas: Quotas, configured: ConfiguredQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self._configured = configured
        self._clock = clock
        self._waiting: dict[str, deque[asyncio.Future[Permit]]] = {}  # by limit

    async def wait_for_use(self, name: str, wait_s: float) -> Permit | None:
        """Return the permit of a use; None if none may begin within `wait_s`, or `ONE_ANSWER_S`.

        Raises LimitError for an unknown name.
        """
        self._require(name)
        use: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(name, deque())
        queue.append(use)
        try:
            self._begin(name)
            self._ask(name)
            async with asyncio.timeout(max(wait_s, ONE_ANSWER_S)):
                return await use
        except BaseException as error:
            if use.done() and not use.cancelled():  # it came in the same moment
                self._quotas.note_ended(use.result(), None)
            if isinstance(error, TimeoutError):
                return None
            raise
        finally:
            if use in queue:
                queue.remove(use)
            self._ask(name)

    def end_use(self, permit: Permit) -> None:
        """Give the permit of a use back; the next one may begin."""
        self._quotas.note_ended(permit, NOTHING)
        self.begin_all()

    def begin_all(self) -> None:
        """Begin the uses that may begin now."""
        for name in tuple(self._waiting):
            self._begin(name)

    def _begin(self, name: str) -> None:
        queue, limit = self._waiting[name], (LimitKind.NAMED, name)
        while queue:
            permit = self._quotas.permit((limit,), NOTHING, CallSize(), self._clock.now_s())
            if permit is None:
                return
            use = queue.popleft()
            if use.done():
                self._quotas.note_ended(permit, None)
            else:
                use.set_result(permit)

    def _ask(self, name: str) -> None:
        """Tell the quotas how many uses wait for a limit."""
        queue = self._waiting.get(name)
        call = WaitingCall(charge=NOTHING, limits=((LimitKind.NAMED, name),))
        calls = [call] * len(queue or ())
        self._quotas.set_waiting(name, (), self._clock.now_s(), "handlers", later=calls)
        if not queue:
            self._waiting.pop(name, None)

    def _require(self, name: str) -> None:
        """Raise LimitError if the settings have no such limit."""
        known = self._configured.named
        if name not in known:
            raise LimitError(
                f"the settings have no limit named {name!a}; "
                "add a section [limits.NAME] with in_flight or rpm; "
                f"known are: {', '.join(sorted(known)) or 'none'}"
            )

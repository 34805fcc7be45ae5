"""The heartbeat: keeps this agent's leases alive, in a thread of its own.

If the current incarnation is no longer good, it registers a new one. An incarnation that was
declared lost is never revived. An incarnation that was only late keeps its heartbeat while its
calls run, so that they do not count as dead. Nothing new starts under it.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from docllm.agent.lease import HEARTBEAT_MAX_AGE_S, Lease
from docllm.agent.ledger.leases import leasing
from docllm.agent.membership.life_locks import LifeLocks
from docllm.schemas.codes import Code
from docllm.schemas.ledger.database import DatabaseError
from docllm.schemas.ledger.errors import away, deadlocked
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.runtime.outage import DUTY, Outage

log = logging.getLogger(__name__)

RETRY_BEAT_S = 1.0
DEADLOCK_TRIES = 5


@dataclass(slots=True, kw_only=True, eq=False)
class Heartbeat:
    """The leases of one agent. Claims are made under the `current` one.

    `revision` is the schema revision of this version. `report` returns what is stored with each
    heartbeat: the agent's report as JSON, or nothing. `release` is stored with each incarnation.
    """

    transactions: Transactions
    clock: Clock
    name: str
    group: str
    version: str
    locks: LifeLocks | None
    revision: str
    report: Callable[[], str]
    release: str = ""
    _leases: list[Lease] = field(default_factory=list, init=False)
    # How many leases were declared lost, or were late for too long; each was replaced.
    leases_lost: int = field(default=0, init=False)
    _trouble: Outage = field(init=False)
    _report_trouble: Outage = field(init=False)

    def __post_init__(self) -> None:
        self._trouble = Outage(name="the heartbeat", clock=self.clock, words=DUTY)
        self._report_trouble = Outage(
            name="the report in the heartbeat", clock=self.clock, words=DUTY, patience_s=0
        )

    @property
    def current(self) -> Lease:
        """The newest lease. A claim under it may be refused: see `may_claim`."""
        return self._leases[-1]

    async def register(self) -> Lease:
        """Register a new incarnation."""
        asked_at_s = self.clock.now_s()
        agent_id = await self.transactions.write(
            leasing.register,
            self.name,
            self.group,
            self.version,
            self.revision,
            self.release,
        )
        crash.reach("lease.registered")
        if self.locks is not None:
            self.locks.hold(agent_id)
        self._leases.append(Lease(agent_id, asked_at_s))
        return self.current

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            began_s = self.clock.now_s()
            has_answered = await self.beat_once()
            wait_s = leasing.HEARTBEAT_S if has_answered else RETRY_BEAT_S
            await self.clock.sleep(max(0.0, wait_s - (self.clock.now_s() - began_s)))

    async def beat_once(self) -> bool:
        """Renew every lease, and register a new incarnation if the current one is not good.

        Returns whether the ledger answered.
        """
        try:
            for lease in list(self._leases):
                await self._beat(lease)
            if not self.current.may_claim(self.clock.now_s()):
                await self._replace()
        except Exception as error:  # noqa: BLE001 - an agent without heartbeat counts as dead
            if not away(error):  # the database logs its own outages
                self._trouble.failed(f"{type(error).__name__}: {getattr(error, 'orig', error)}")
            return False
        self._trouble.answered()
        return True

    async def stop(self) -> None:
        """Record that this agent left, after its last settle."""
        for lease in self._leases:
            await self.transactions.write(leasing.stop, lease.agent_id)
        if self.locks is not None:
            self.locks.close()

    async def _beat(self, lease: Lease) -> None:
        if lease.is_lost:
            self._retire(lease)
            return
        asked_at_s = self.clock.now_s()
        # Noted here: the heartbeat of another lease may have waited for the ledger until now.
        lease.was_late |= asked_at_s - lease.beaten_at_s > HEARTBEAT_MAX_AGE_S
        # Only the present incarnation carries the report.
        report = self._reported() if lease is self.current else ""
        alive = await self._write_beat(lease.agent_id, report)
        if alive:
            lease.beaten_at_s = asked_at_s
        else:
            lease.is_lost = True
        is_idle = lease.running == 0 and lease.hooks == 0
        if lease is not self.current and is_idle and alive:
            await self.transactions.write_once(leasing.stop, lease.agent_id)
            self._leases.remove(lease)

    def _reported(self) -> str:
        """Return the report; empty if it cannot be made, since the heartbeat matters more."""
        try:
            report = self.report()
        except Exception as error:  # noqa: BLE001 - see above
            self._report_trouble.failed(f"{type(error).__name__}: {error}")
            return ""
        self._report_trouble.answered()
        return report

    async def _write_beat(self, agent_id: int, report: str) -> bool:
        """Write one heartbeat, and retry after a deadlock.

        A deadlock ends the transaction at once and says nothing about the server.
        """
        tries = 0
        while True:
            tries += 1
            try:
                return await self.transactions.write_once(leasing.beat, agent_id, report)
            except DatabaseError as error:
                if not deadlocked(error) or tries == DEADLOCK_TRIES:
                    raise

    def _retire(self, lease: Lease) -> None:
        """Drop a lost lease once its successor exists.

        Outcomes of its running calls settle late.
        """
        if lease is not self.current:
            self._leases.remove(lease)

    async def _replace(self) -> None:
        former = self.current
        self.leases_lost += 1
        reason = "was declared lost" if former.is_lost else "was silent for too long"
        successor = await self.register()
        log.warning(
            "agent %d %s; it goes on as agent %d",
            former.agent_id,
            reason,
            successor.agent_id,
            extra={"code": Code.LEASE_LOST},
        )


class HeartbeatThread:
    """Runs the heartbeat on its own event loop and connection.

    A busy main loop cannot stop it.
    """

    def __init__(self, heartbeat: Heartbeat, *, executor: Executor) -> None:
        self._heartbeat = heartbeat
        self._executor = executor
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._end: Future[None] = Future()

    @property
    def has_ended(self) -> bool:
        """Whether the thread has run and runs no more."""
        return self._thread.ident is not None and not self._thread.is_alive()

    async def register(self) -> None:
        """Register the agent. The event loop goes on while the ledger takes no writes."""
        await self._executor(lambda: self._loop.run_until_complete(self._heartbeat.register()))

    def start(self) -> None:
        """Start sending heartbeats."""
        self._beating = self._loop.create_task(self._heartbeat.run())
        self._thread.start()

    async def leave(self) -> None:
        """Stop the heartbeats, and record in the ledger that this agent left."""
        await self._executor(self.stop)

    def stop(self) -> None:
        """Stop the heartbeats, record that this agent left, and block until that is written.

        Raises the error that kept the thread from writing it.
        """
        self._loop.call_soon_threadsafe(self._beating.cancel)
        self._thread.join()
        self._end.result()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(asyncio.wait([self._beating]))
            self._loop.run_until_complete(self._heartbeat.stop())
        except Exception as error:  # noqa: BLE001 - `stop` raises it
            self._end.set_exception(error)
        else:
            self._end.set_result(None)
        finally:
            self._loop.close()

"""The locks that this agent's attempts hold or wait for.

One loop makes the ledger calls for all attempts. A waiting attempt is a row and a future and holds
no connection. Every `READ_EVERY_S`, the loop checks all waits in one query.
"""

import asyncio
from collections.abc import Container, Iterable
from contextlib import suppress
from typing import NamedTuple

from docllm.agent.handlers.held_lock import LockError
from docllm.agent.ports import Clock
from docllm.agent.ports.lock_table import NOBODY, Claimant, Held, LockChange, LockTable
from docllm.schemas.agent_report import Reason
from docllm.schemas.codes import Code
from docllm.schemas.runtime import crash

READ_EVERY_S = 0.25
RETRY_CHANGE_S = 1.0  # the pause after a failure
PAGE = 100  # locks in one transaction
SHOWN_AFTER_S, SHOWN_LOCKS = 5.0, 3  # waits and locks in the agent's report


class LockRequest(NamedTuple):
    """One attempt at one lock."""

    name: str
    attempt: Claimant


class ResourceLocks:
    """The locks of one agent's attempts."""

    def __init__(self, *, table: LockTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._waits: dict[LockRequest, asyncio.Future[int | None]] = {}
        self._once: set[LockRequest] = set()  # those that wait no longer than for their answer
        # Pending changes by lock: first the attempts that leave, then the attempts that ask, in
        # order.
        self._asking: dict[LockRequest, None] = {}
        self._leaving: dict[LockRequest, None] = {}
        self._asked_at_s: dict[LockRequest, float] = {}  # only requests that wait
        self._holders: dict[str, Claimant] = {}  # by lock, if a request waits for it
        self._stale: set[str] = set()  # locks whose holder's claim has ended
        self._read_at_s = 0.0
        self._wake = asyncio.Event()

    def of(self, task_id: int, owner: int) -> "LocksOfAttempt":
        """Return the locks of an attempt.

        The caller closes them when the attempt ends.
        """
        return LocksOfAttempt(self, attempt=Claimant(task_id, owner))

    def ask(self, request: LockRequest) -> None:
        """Ask for a lock.

        The caller must call `leave` afterwards, whether or not it gets the lock.
        """
        self._waits[request] = asyncio.get_running_loop().create_future()
        self._asked_at_s[request] = self._clock.now_s()
        self._asking[request] = None
        self._wake.set()

    async def wait(self, request: LockRequest, wait_s: float, *, once: bool) -> int | None:
        """Return the lock's token once it is held; None if it is not free in time, or `once`."""
        if once:
            self._once.add(request)
        try:
            async with asyncio.timeout(wait_s):
                return await self._waits[request]
        except TimeoutError:
            return None
        finally:
            self._waits.pop(request, None)
            self._once.discard(request)
            self._asked_at_s.pop(request, None)

    def leave(self, request: LockRequest) -> None:
        """Release a lock, or stop waiting for it."""
        self._waits.pop(request, None)
        self._asked_at_s.pop(request, None)
        # The ask may be in a write that is under way, so the leave is written in any case.
        self._asking.pop(request, None)
        self._leaving[request] = None
        self._wake.set()

    def reasons(self, now_s: float) -> list[Reason]:
        """Return the locks for which attempts have waited for long, for the agent's report."""
        waited_s: dict[str, list[float]] = {}
        for request, asked_s in self._asked_at_s.items():
            waited_s.setdefault(request.name, []).append(now_s - asked_s)
        return [
            Reason(
                Code.LOCK_HELD,
                name,
                text=f"task {self._holders[name].task_id}",
                seconds=max(of_lock),
                count=len(of_lock),
            )
            for name, of_lock in sorted(waited_s.items(), key=lambda item: -len(item[1]))
            if max(of_lock) >= SHOWN_AFTER_S and self._holders.get(name, NOBODY) != NOBODY
        ][:SHOWN_LOCKS]

    @property
    def idle(self) -> bool:
        """Whether nothing is left to be written."""
        return not (self._asking or self._leaving or self._stale)

    async def run_once(self) -> None:
        """Pause until there is something to do; write requests and releases; check the waits."""
        if self.idle:
            await self._pause()
        if not self.idle:
            await self._write()
        if self._waits and self._clock.now_s() - self._read_at_s >= READ_EVERY_S:
            self._read_at_s = self._clock.now_s()
            await self._read_holders()

    async def _pause(self) -> None:
        """Wait until an attempt asks or leaves, or until the waits are due to be checked."""
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_EVERY_S if self._waits else None):
                await self._wake.wait()
        self._wake.clear()

    async def _write(self) -> None:
        """Write the changes of some locks; if that fails, they are to be written again."""
        names = sorted({request.name for request in (*self._asking, *self._leaving)} | self._stale)
        changes = {name: LockChange() for name in names[:PAGE]}
        asking = _take_of(self._asking, changes)
        leaving = _take_of(self._leaving, changes)
        for request in asking:
            changes[request.name].asking.append(request.attempt)
        for request in leaving:
            changes[request.name].leaving.append(request.attempt)
        try:
            held = await self._table.change(changes)
        except Exception:
            # Ignore attempts that left during the write, unless they asked again.
            remaining = [request for request in asking if request not in self._leaving]
            self._asking = {**dict.fromkeys(remaining), **self._asking}
            self._leaving = {**dict.fromkeys(leaving), **self._leaving}
            await self._clock.sleep(RETRY_CHANGE_S)
            raise
        crash.reach("lock.changed")
        self._stale.difference_update(changes)
        self._tell_holders(held)
        for request in self._once.intersection(asking):
            waiter = self._waits.get(request)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    async def _read_holders(self) -> None:
        """Learn which waits have ended, and which locks nobody holds any more."""
        names = sorted({request.name for request in self._waits})
        holders: dict[str, Claimant] = {}
        while page := names[:PAGE]:
            del names[:PAGE]
            held = await self._table.read_holders(page)
            self._tell_holders(held)
            holders |= {lock.name: lock.holder for lock in held if lock.alive}
            self._stale.update(lock.name for lock in held if not lock.alive)
        self._holders = holders

    def _tell_holders(self, held: Iterable[Held]) -> None:
        for lock in held:
            waiter = self._waits.get(LockRequest(lock.name, lock.holder))
            if waiter is not None and lock.alive and not waiter.done():
                waiter.set_result(lock.token)


def _take_of(requests: dict[LockRequest, None], names: Container[str]) -> list[LockRequest]:
    """Remove and return the requests for these locks, in order."""
    chosen = [request for request in requests if request.name in names]
    for request in chosen:
        del requests[request]
    return chosen


class LocksOfAttempt:
    """The locks that one attempt holds or waits for."""

    def __init__(self, locks: ResourceLocks, *, attempt: Claimant) -> None:
        self._locks = locks
        self._attempt = attempt
        self._names: set[str] = set()
        self._closed = False

    def ask(self, name: str) -> None:
        """Ask for a lock.

        Raises LockError if the attempt holds the lock, or waits for it, or has ended.
        """
        if self._closed:
            raise LockError(f"the attempt has ended; it takes no lock {name}")
        if name in self._names:
            raise LockError(
                f"this attempt holds the lock {name} already, or waits for it; take it once"
            )
        self._names.add(name)
        self._locks.ask(LockRequest(name, self._attempt))

    async def wait(self, name: str, wait_s: float, *, once: bool = False) -> int | None:
        """Return the lock's token once it is held; None if it is not free within `wait_s`.

        With `once`, None also if it is not free when it is asked for.
        """
        return await self._locks.wait(LockRequest(name, self._attempt), wait_s, once=once)

    def give_back(self, name: str) -> None:
        """Release a lock, or stop waiting for it."""
        if name in self._names:
            self._names.remove(name)
            self._locks.leave(LockRequest(name, self._attempt))

    def close(self) -> None:
        """Give all locks back, because the attempt has ended, and take no other."""
        self._closed = True
        for name in list(self._names):
            self.give_back(name)

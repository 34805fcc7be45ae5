"""The duty that looks after guards.

It refreshes what this agent knows of guards, runs their looks, opens them, and calls up the tasks
that they moved.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from agent.execution.guard_gate import GuardGate
from agent.execution.publishing import Publishing
from agent.ledger import guard_probes
from agent.ports import Clock
from producer.ledger import guards as rows
from schemas.errors import DocllmError
from schemas.ledger.database import Connection, DatabaseError
from schemas.ledger.transactions import Transactions
from schemas.runtime import crash
from schemas.runtime.outage import DUTY, Outage
from schemas.task.guard import Guard, GuardCause

log = logging.getLogger(__name__)

LOOK_S = 1.0
IDLE_S = 10.0
# One pass stays short: the most guards that it looks after, in turn, and the most pages of 500
# tasks that it calls up for each.
MOST, PAGES = 50, 4
TIDY_S, REMIND_S = 60.0, 60.0
TOLD_MOST = 5  # guards that one reminder names


class GuardKeeper:
    """Looks after the guards of one group.

    `ask` sends our own prompt to a route and returns whether it was answered. `route_of` returns
    the route of a task's value.
    """

    def __init__(
        self,
        *,
        transactions: Transactions,
        clock: Clock,
        group: str,
        guards: GuardGate,
        probe_s: float,
        ask: Callable[[str], Awaitable[bool]],
        route_of: Callable[[bytes], str],
        publishing: Publishing,
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._group = group
        self._guards = guards
        self._probe_s = probe_s
        self._ask = ask
        self._route_of = route_of
        self._publishing = publishing
        self._trouble = Outage(name="looking after guards", clock=clock, words=DUTY)
        self._known: dict[int, Guard] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._looks = 0
        self._tidied_s = self._told_s = clock.now_s()

    async def run(self) -> None:
        """Make a pass each second until cancelled."""
        try:
            while True:
                await self._guarded(self.look())
                await self._clock.sleep(LOOK_S)
        finally:
            for one in self._asking:
                one.cancel()

    async def look(self) -> None:
        """Make one pass: look after the next guards, and delete old ones each minute."""
        found, members = await self._transactions.read(self._read)
        self._learn({one.id: one for one in found if one.raised}, members)
        for one in self._in_turn(found):
            await (self._watch(one) if one.raised else self._call_up(one))
        if self._clock.now_s() - self._tidied_s >= TIDY_S:
            self._tidied_s = self._clock.now_s()
            await self._transactions.write(guard_probes.forget, self._group)

    def _read(self, connection: Connection) -> tuple[list[Guard], set[int]]:
        found = rows.read(connection, self._group)
        looking = any(one.raised and one.looking for one in found)
        return found, rows.members(connection, self._group) if looking else set()

    def _in_turn(self, found: list[Guard]) -> list[Guard]:
        """Return the next guards to look after, at most MOST of those with something to do."""
        busy = [
            one
            for one in found
            if not one.raised
            or one.cause == GuardCause.NO_SUCCESS
            or one.looking
            or one.probe_in_s <= 0
        ]
        first = self._looks * MOST % max(len(busy), 1)
        self._looks += 1
        return (busy[first:] + busy[:first])[:MOST]

    def _learn(self, raised: dict[int, Guard], members: set[int]) -> None:
        for key, one in raised.items():
            before = self._known.get(key)
            if before is None:
                log.warning(
                    "the guard of %s is raised, its tasks wait: %s; %s",
                    one.key,
                    one.reason,
                    one.ahead,
                )
            elif (before.looking, before.look_size) != (one.looking, one.look_size):
                log.info("the guard of %s: %s", one.key, one.ahead)
        for key, one in self._known.items():
            if key not in raised:
                log.info("the guard of %s is open, its tasks run again", one.key)
        self._known = raised
        self._guards.replace(raised.values(), members)
        self._remind()

    def _remind(self) -> None:
        """Log now and then which guards are raised.

        An agent with `--until-done` may wait for them for hours.
        """
        if self._known and self._clock.now_s() - self._told_s >= REMIND_S:
            self._told_s = self._clock.now_s()
            told = [
                f"the guard of {one.key} ({one.reason}; {one.ahead})"
                for one in list(self._known.values())[:TOLD_MOST]
            ]
            more = (
                f" and {len(self._known) - len(told)} more guards"
                if len(self._known) > len(told)
                else ""
            )
            log.info("tasks still wait for %s%s", "; ".join(told), more)

    async def _watch(self, one: Guard) -> None:
        why = await self._transactions.write(guard_probes.look_at, self._group, one, self._probe_s)
        if why:
            await self._open(one, why)
        elif one.looking and one.look_left and one.probe_in_s <= -guard_probes.PATIENCE_S:
            called = await self._transactions.write(
                guard_probes.call_some, self._group, one, self._route_of
            )
            crash.reach("guard.called_up")
            self._publishing.send(called)
        elif not one.looking and one.probe_in_s <= 0:
            await self._begin(one)

    async def _begin(self, one: Guard) -> None:
        """Begin the look that is due; if its route must be asked first, send a prompt for it."""
        if not await self._transactions.write(guard_probes.any_waiting, one):
            await self._idle(one)
        elif one.cause == GuardCause.NO_SUCCESS or not await self._transactions.write(
            guard_probes.begin, self._group, one
        ):
            asked = await self._transactions.write(
                guard_probes.take_route_turn, self._group, one.route, self._probe_s
            )
            if asked:
                crash.reach("guard.turn_taken")
                asking = asyncio.create_task(self._guarded(self._ask_route(one.route, asked)))
                self._asking.add(asking)
                asking.add_done_callback(self._asking.discard)

    async def _idle(self, one: Guard) -> None:
        """Open a guard that has no tasks left, or wait longer while some of its tasks run.

        Nothing is forgiven, because later tasks of the key are as bad as those that failed.
        """
        if await self._transactions.write(guard_probes.running, one):
            await self._transactions.write(guard_probes.put_off, one, IDLE_S)
        else:
            await self._open(one, "nothing of it is left", forgiven=False)

    async def _ask_route(self, route: str, asked: guard_probes.Asked) -> None:
        answered = await self._ask(route)
        if answered:
            await self._transactions.write(guard_probes.route_answered, route)
            crash.reach("guard.answered")
        else:
            log.warning(
                "route %s does not answer a prompt; it is asked again in %.0f s",
                route,
                self._probe_s,
            )
        await self._transactions.write(guard_probes.begin_asked, asked, answered=answered)

    async def _open(self, one: Guard, why: str, *, forgiven: bool = True) -> None:
        await self._transactions.write(rows.open_one, one, "docllm", why, forgiven=forgiven)
        crash.reach("guard.opened")

    async def _call_up(self, one: Guard) -> None:
        for _ in range(PAGES):
            orders = await self._transactions.write(guard_probes.call_up, self._group, one)
            if not orders:
                return
            crash.reach("guard.called_up")
            self._publishing.send(orders)

    async def _guarded(self, duty: Awaitable[None]) -> None:
        """Run a duty; if it fails, log it, and the next pass tries again."""
        try:
            await duty
        except (DatabaseError, DocllmError, OSError) as error:
            self._trouble.failed(getattr(error, "orig", error))
        else:
            self._trouble.answered()

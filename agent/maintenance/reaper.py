"""The reaper: resets tasks of dead agents, relays orders, and replaces lost records.

One runs inside every agent, and any number may run. It repairs, and never settles a task for an
agent that is alive.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from agent.ledger import leases, losses, queries, reaping
from agent.ledger import sweeping as sweep
from agent.membership.heartbeat import Heartbeat
from agent.membership.locks import AgentLocks
from producer.ledger import cancel
from producer.ports import TopicAdmin
from producer.relay.relay import Relay
from schemas.errors import DeniedError, DocllmError, UnreachableError
from schemas.ledger.database import Connection, DatabaseError
from schemas.ledger.transactions import Transactions
from schemas.runtime import crash
from schemas.runtime.clock import Clock
from schemas.runtime.outage import DUTY, Outage
from schemas.task.states import Status
from schemas.task.topics import Topics

Result = TypeVar("Result")
log = logging.getLogger(__name__)

LOOK_S, RELAY_S = 1.0, 2.0
# Orphans are looked for again although no new agent is gone: a lost agent may have claimed since.
REPEAT_S = 5.0
TIDY_S = 60.0
DROP_S = 30.0
# Tasks of a lost topic. The ledger has other work too, and the other duties need their turn.
SWEPT_PER_S, SWEPT_MOST = 2000.0, 50_000
LATEST_S = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


@dataclass(slots=True)
class Sweep:
    """The schedule of the sweep: each minute, and soon after Kafka seems to have lost records."""

    slack_s: float
    wanted: asyncio.Event

    def wake(self) -> None:
        """Let the sweep run soon."""
        self.wanted.set()


class Reaper:
    """The duties of one agent towards the others of its group."""

    def __init__(
        self,
        *,
        transactions: Transactions,
        clock: Clock,
        topics: Topics,
        admin: TopicAdmin,
        relay: Relay,
        heartbeat: Heartbeat,
        locks: AgentLocks | None,
        sweep: Sweep,
        agents_gone: Callable[[frozenset[int]], None],
        finished: Callable[[], Mapping[tuple[str, int], int]],
        kafka: Outage,
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._topics = topics
        self._admin = admin
        self._relay = relay
        self._heartbeat = heartbeat
        self._locks = locks
        self._sweep = sweep
        self._agents_gone = agents_gone
        self._finished = finished
        self._kafka = kafka
        self._troubles: dict[str, Outage] = {}
        self._gone: frozenset[int] = frozenset()
        self._cancels_done: frozenset[tuple[int, datetime]] = frozenset()

    async def reap_forever(self) -> None:
        """Each second until cancelled: judge agents, reset their tasks, then tell who is gone.

        The loop asks for those tasks when it is told, so they must be free by then.
        """
        looked_s = -REPEAT_S
        while True:
            fresh = await self._guarded("judging other agents", self._look)
            now_s = self._clock.now_s()
            if fresh or now_s - looked_s >= REPEAT_S:
                looked_s = now_s
                await self._guarded("resetting lost tasks", self.reap_once)
            self._agents_gone(self._gone)
            await self._clock.sleep(LOOK_S)

    async def relay_forever(self) -> None:
        """Send orders that were left, until cancelled."""
        dropped_s = self._clock.now_s()
        while True:
            await self._guarded("relaying orders", self._relay.relay_once)
            if self._clock.now_s() - dropped_s >= DROP_S:
                dropped_s = self._clock.now_s()
                await self._guarded("dropping settled orders", self._relay.drop_settled)
            await self._clock.sleep(RELAY_S)

    async def tidy_forever(self) -> None:
        """Run the slow duties each minute until cancelled.

        They are the sweep, cancels that go on, the summing up of counts, the forgetting of old
        agents and losses, and the trimming of topics.
        """
        while True:
            await self._guarded("the sweep", self.sweep_once)
            await self._guarded("going on with cancels", self._cancel_on)
            await self._guarded(
                "summing up counts", lambda: self._transactions.write(sweep.compact)
            )
            await self._guarded(
                "forgetting old agents", lambda: self._transactions.write(leases.forget)
            )
            await self._guarded("taking back losses", self._absolve)
            await self._guarded(
                "forgetting old losses", lambda: self._transactions.write(losses.forget)
            )
            await self._guarded("trimming topics", self._trim)
            await self._wait_for_sweep()

    async def _wait_for_sweep(self) -> None:
        """Wait a minute, or only a few seconds if Kafka has lost records."""
        self._sweep.wanted.clear()
        waited_s = 0.0
        while waited_s < TIDY_S and not self._sweep.wanted.is_set():
            await self._clock.sleep(LOOK_S)
            waited_s += LOOK_S
        await self._clock.sleep(REPEAT_S)

    async def reap_once(self) -> int:
        """Reset tasks of gone agents and tasks past their hard deadline; return how many."""
        total = died = 0
        for find, reset in (
            (reaping.orphans, reaping.reset_orphans),
            (reaping.overdue, reaping.reset_overdue),
        ):
            while ids := await self._transactions.write(find, self._topics.group):
                back, dead = await self._transactions.write(reset, self._topics.group, ids)
                if back or dead:
                    crash.reach("reap.reset")
                    log.warning(
                        "%d tasks of lost agents or past their deadline wait again, "
                        "%d are dead of it",
                        back,
                        dead,
                    )
                total += back + dead
                died += dead
                if len(ids) < reaping.PAGE or not (back or dead):
                    break
        if died:
            await self._absolve()
        return total

    async def _absolve(self) -> None:
        """Undo the losses of tasks that were only beside a task that killed its agent."""
        while undone := await self._transactions.write(reaping.absolve, self._topics.group):
            log.warning(
                "%d losses of tasks beside one that killed its agent are taken back", undone
            )
            if undone < losses.PAGE:
                break

    async def sweep_once(self) -> int:
        """Order records for waiting tasks that have none; return how many."""
        carried = await self._carried()
        total = 0
        slack_s, group = self._sweep.slack_s, self._topics.group
        while found := await self._transactions.write(sweep.uncarried, group, carried, slack_s):
            crash.reach("sweep.ordered")
            total += found
            log.warning(
                "%d waiting tasks had no record on their topic; they are published again", found
            )
            if found < sweep.PAGE or total >= SWEPT_MOST:
                break
            await self._clock.sleep(sweep.PAGE / SWEPT_PER_S)
        return total

    async def _carried(self) -> list[sweep.Carried]:
        """Return for each status of a waiting task the topics that carry it, and their horizon.

        A pending task's record is on `tasks`: loads, replays and repairs publish there. If an agent
        gave it back after a retry, its record is in a retry topic; unless that is claimed within
        the slack, the task gets a second record with the same fence. A retrying task's record may
        be on any of them, since an opened guard publishes it on `tasks`.
        """
        everywhere = ("tasks", *self._topics.tier_destinations)
        oldest_ms = {name: await self._oldest_ms(name) for name in everywhere}
        carriers = {Status.PENDING: ("tasks",), Status.RETRYING: everywhere}
        return [
            sweep.Carried(status, names, _oldest(oldest_ms[name] for name in names))
            for status, names in carriers.items()
        ]

    async def _oldest_ms(self, destination: str) -> int | None:
        """Return the smallest append time at a topic's committed offsets; None without a lag."""
        readers = self._topics.consumer_group(destination)
        backlog = await self._admin.backlog(readers, [self._topics.name(destination)])
        return backlog.oldest_ms

    async def _look(self) -> bool:
        """Judge other agents and read who is gone; return whether another agent is gone."""
        if self._locks is not None:
            await self._look_at_locks(self._locks)
        judged, gone = await self._transactions.write(self._judge)
        if judged:
            crash.reach("reap.judged")
            log.warning("%d agents are declared lost", judged)
        news = bool(gone - self._gone)
        self._gone = gone
        return news

    def _judge(self, connection: Connection) -> tuple[int, frozenset[int]]:
        """Declare agents lost if our own lease is fresh; return how many, and all who are gone."""
        me = self._heartbeat.current
        judged = (
            leases.judge_others(connection, me.agent_id) if me.fresh(self._clock.now_s()) else 0
        )
        return judged, leases.gone(connection, self._topics.group)

    async def _look_at_locks(self, locks: AgentLocks) -> None:
        for agent_id, name in await self._transactions.write(leases.alive, self._topics.group):
            if locks.dead(agent_id) and await self._transactions.write(
                leases.declare_lost, agent_id
            ):
                crash.reach("reap.judged")
                log.warning("agent %s (%d) is dead: its process is gone", name, agent_id)
                locks.remove(agent_id)

    async def _cancel_on(self) -> None:
        """Continue cancels until no task of their batches is open.

        A cancel may have been interrupted, or tasks may have escaped it by running. No task can be
        added to a cancelled batch.
        """
        cancelled = await self._transactions.write(leases.cancelled, self._topics.group)
        self._cancels_done &= cancelled
        for batch_id, at in sorted(cancelled - self._cancels_done):
            after = cancel.FIRST_KEY
            while after is not None:
                _, after = await self._transactions.write(cancel.cancel_page, batch_id, after)
                crash.reach("cancel.page_cancelled")
            if not await self._transactions.write(queries.open_in, batch_id):
                self._cancels_done |= {(batch_id, at)}

    async def _trim(self) -> None:
        """Delete finished records, topic by topic.

        A topic that takes no deletion, such as a compacted one, holds up no other topic.
        """
        finished = self._finished()
        for destination in self._topics.destinations:
            name = self._topics.name(destination)
            mine = {place: offset for place, offset in finished.items() if place[0] == name}
            if mine:
                await self._guarded(
                    f"trimming {name}", partial(self._trim_topic, destination, mine)
                )

    async def _trim_topic(self, destination: str, finished: Mapping[tuple[str, int], int]) -> None:
        """Delete the records that this agent has finished and that the group has committed.

        A committed offset alone is not enough: after a topic was made again, it refers to records
        that no longer exist.
        """
        backlog = await self._admin.backlog(
            self._topics.consumer_group(destination), [self._topics.name(destination)]
        )
        await self._admin.trim(
            {
                place: min(offset, backlog.committed.get(place, 0))
                for place, offset in finished.items()
            }
        )
        crash.reach("trim.trimmed")

    async def _guarded(self, name: str, duty: Callable[[], Awaitable[Result]]) -> Result | None:
        """Run a duty; log a failure and try again later. A missing right ends the agent."""
        trouble = self._troubles.setdefault(
            name, Outage(name=name, clock=self._clock, words=DUTY, patience_s=0)
        )
        try:
            result = await duty()
        except DeniedError:
            raise
        except (DatabaseError, DocllmError, OSError) as error:
            if not (isinstance(error, UnreachableError) and self._kafka.told):
                trouble.failed(getattr(error, "orig", error))
            return None
        trouble.answered()
        return result


def _oldest(timestamps_ms: Iterable[int | None]) -> datetime | None:
    known = [timestamp_ms for timestamp_ms in timestamps_ms if timestamp_ms is not None]
    return _time(min(known)) if known else None


def _time(timestamp_ms: int) -> datetime:
    """Return a record's time as the ledger writes it.

    The ledger's times end with the year 9999, but the writer of a record may have named any time.
    """
    return datetime.fromtimestamp(min(max(timestamp_ms / 1000, 0), LATEST_S), UTC).replace(
        tzinfo=None
    )

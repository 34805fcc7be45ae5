"""Archives and purges the batch of a run that has ended, while its agents run.

The commands are killed and given again, somebody replays what is archived, and records of the
batch arrive again all the while.
"""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.task.record.envelope import NotOursError, Outgoing, decode, is_letter
from tests.invariants import counted
from tests.invariants.evidence import Evidence
from tests.invariants.happened import Late
from tests.simulation import people, watch, witness
from tests.simulation.machine import BATCH, GROUP, LEDGER_ID, Machine
from tests.simulation.points import POINTS
from tests.simulation.programs import Program

if TYPE_CHECKING:
    from tests.simulation.world import World

_INBOX = f"{GROUP}.inbox"
_COPIES = 3  # of a partition's records, at a time
_GUARD_S = 300.0  # a guard that was opened is forgotten within this time
_QUARANTINED = """
SELECT q.topic, q.record_value FROM quarantine q JOIN sim_kept k ON q.topic_id = k.topic_id
AND q.topic = k.topic AND q.part = k.part AND q.record_offset = k.record_offset WHERE k.turn > ?
"""
_MOVED = "SELECT task_id FROM sim_move WHERE turn > ?"
_POINTS = {
    name: [point for point in POINTS if point.startswith(f"{name}.")]
    for name in ("archive", "purge")
}


class Purging:
    """What a run does with its batch at its end.

    `done` says whether the batch was purged.
    """

    def __init__(
        self, world: "World", do: Callable[[str, Coroutine[Any, Any, None]], Program]
    ) -> None:
        self.done = False
        self._world = world
        self._do = do
        self._before = witness.evidence(world)
        self._bodies = {task.id: (task.raw_key, task.value) for task in self._before.tasks}
        self._archived = 0  # the event after which the batch was archived
        self._batch_id = 0
        self._late: set[tuple[str, bytes | None]] = set()

    async def run(self) -> None:
        """Archive and purge the batch; late records arrive from the archive on."""
        world = self._world
        self._batch_id = world.store.rows("SELECT id FROM batch WHERE name=?", BATCH)[0][0]
        await self._command("archive", people.archive_batch)
        self._archived = world.store.turn()
        self._do("replay", people.replay_all(world.machine))
        self._do("reopen", people.replay_all(world.machine, cancelled=True))
        self._copy()
        await self._command("purge", people.purge_batch)
        self._copy()
        purged = world.store.rows("SELECT 1 FROM batch WHERE id=? AND purged_at", self._batch_id)
        self.done = bool(purged)

    def evidence(self) -> Evidence:
        """Return the evidence of the run until the archive, with what has happened since."""
        world, rows = self._world, self._world.store.rows
        own = {task.id for task in self._before.tasks if task.name.startswith(f"{BATCH}/")}
        late = Late(
            sent=len(self._late),
            called=sorted(
                call.name
                for call in world.llm.calls
                if call.turn > self._archived and call.batch_id == self._batch_id
            ),
            quarantined=sum(tuple(row) in self._late for row in rows(_QUARANTINED, self._archived)),
            moved=[task_id for (task_id,) in rows(_MOVED, self._archived) if task_id in own],
            left=rows("SELECT count(*) FROM task WHERE batch_id=?", self._batch_id)[0][0]
            if self.done
            else 0,
        )
        return replace(
            self._before,
            positions=list(watch.positions(world.broker)),
            orders=rows("SELECT count(*) FROM outbox")[0][0],
            failures=world.failures,
            sums=[*counted.sums(rows, "sim_count"), self._before.sums[-1]],
            misread=world.store.misread,
            late=late,
        )

    async def _command(
        self, name: str, work: Callable[[Machine], Coroutine[Any, Any, None]]
    ) -> None:
        """Give a command, kill it at a point in half of the runs, and give it again."""
        world = self._world
        if name in _POINTS and world.rng.random() < 0.5:
            world.armed.append([world.rng.choice(_POINTS[name]), 1])
        began_s = world.loop.time()
        while world.loop.time() - began_s < _GUARD_S:
            program = self._do(name, work(world.machine))
            while program.running:
                await world.clock.sleep(0.05)
                if name == "purge":
                    self._copy()
            if program.error is None and not program.killed:
                break
            if isinstance(program.error, UnsafeStateError):
                world.say(f"{name}: {program.error}")
                self._do("guard-open", people.open_guards(world.machine))
                await world.clock.sleep(10.0)
        else:
            world.problem("P1", f"{name}: not within {_GUARD_S:.0f} s")
        world.armed.clear()

    def _copy(self) -> None:
        """Write some records of the batch again, as a sender does that was frozen for long."""
        broker, rng = self._world.broker, self._world.rng
        for name, topic in list(broker.topics.items()):
            if name == _INBOX or name.endswith((".dlq", ".results")):
                continue
            own = [stored for log in topic.logs for stored in log.records if self._is_own(stored)]
            for stored in rng.sample(own, min(_COPIES, len(own))):
                broker.append(Outgoing(name, stored.key, stored.value, stored.headers))
                self._late.add((name, stored.value))

    def _is_own(self, stored: Any) -> bool:
        """Return whether a record is a publication of the batch."""
        try:
            publication = decode(stored.headers)
        except NotOursError:
            return False
        named = (publication.ledger, publication.batch) == (LEDGER_ID, BATCH)
        is_task = self._bodies.get(publication.task_id) == (stored.key, stored.value)
        return named and is_task and not is_letter(stored.headers)

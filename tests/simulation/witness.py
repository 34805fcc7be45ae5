"""The evidence of a simulated run, from the ledger, the broker, the LLM and the programs."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from docllm.producer.ledger import outbox
from docllm.producer.ledger.quarantine import headers_of
from docllm.producer.ledger.replay_progress import ItemState
from docllm.producer.ports import Item
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.hooks import HookEvent, HookState
from docllm.schemas.task.joins import JoinRole
from docllm.schemas.task.line.parsing import is_exact
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import (
    NotOursError,
    decode,
    is_letter,
)
from docllm.schemas.task.record.topics import duration_s
from docllm.schemas.task.result.codec import (
    COMPLETION,
    COMPLETION_ZLIB,
    JSON_COMPLETION,
    JSON_COMPLETION_ZLIB,
    POINTER,
    unpacked,
)
from docllm.schemas.task.result.output_pointer import OutputAlteredError, OutputPointer
from docllm.schemas.task.states import Status
from tests.invariants import counted
from tests.invariants.evidence import Attempt, Call, Death, Evidence, Letter, Loss, Quota, Task
from tests.invariants.happened import (
    Claim,
    Commit,
    Count,
    DeclaredLost,
    Guarded,
    Incarnation,
    Join,
    Move,
    Ordered,
    Replayed,
    Stored,
)
from tests.invariants.turns import Share
from tests.simulation import watch
from tests.simulation.broker import Topic
from tests.simulation.eventloop import EPOCH_S, MIDNIGHT_S
from tests.simulation.handlers import ends_process
from tests.simulation.machine import (
    BATCH,
    CHILDREN,
    FAMILY,
    FRAGILE,
    GROUP,
    HOOKED,
    LATER,
    LEDGER_ID,
    NARROW,
    NARROW_SLOTS,
    TIERS,
    USE_LIMITS,
    knows_later,
)
from tests.simulation.provider import ANSWERED_ANEW, Made
from tests.simulation.provider_limits import TOKENS_IN, TOKENS_OUT
from tests.simulation.store import TURN, seconds
from tests.simulation.tasks import OF_THE_INBOX

if TYPE_CHECKING:
    from tests.simulation.world import World

DIRECT = f"{GROUP}-direct"
_PLAIN = re.compile(r"/(inbox-)?t-\d+$")  # tasks that succeed with any good answer
_FAMILY = re.compile(rf"/(inbox-)?{FAMILY}-\d+$")  # tasks that order follow-ups
_HOOKED = re.compile(rf"/(inbox-)?{HOOKED}-\d+$")
_FRAGILE = re.compile(rf"/(inbox-)?{FRAGILE}-\d+$")
_KILLS = re.compile(r"/(inbox-)?kills-\d+$")
_ANSWERS = (COMPLETION, COMPLETION_ZLIB, JSON_COMPLETION, JSON_COMPLETION_ZLIB)
_FENCES = 1000  # a record that is ahead of its ledger by more is foreign


def evidence(world: "World") -> Evidence:
    """Return all evidence of a run."""
    return _Witness(world).tell()


class _Witness:
    """Reads the ledger's tables and history, the broker's logs, and the programs' own records.

    The LLM's record of calls belongs to it too.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rows = world.store.rows
        names = self._rows(
            "SELECT t.id, b.name, t.task_key FROM task t JOIN batch b ON b.id=t.batch_id"
        )
        self._names = {
            task_id: f"{quote(name, safe='')}/{quote(key, safe='')}" for task_id, name, key in names
        }
        self._moves = list(self._read_moves())
        self._cancels: dict[int, list[tuple[int, bool]]] = defaultdict(list)
        for turn, batch_id, cancelled in self._rows("SELECT * FROM sim_cancel ORDER BY turn"):
            self._cancels[batch_id].append((turn, bool(cancelled)))

    def tell(self) -> Evidence:
        world = self._world
        tasks, calls = list(self._tasks()), list(self._calls())
        return Evidence(
            loaded=self._loaded({task.name for task in tasks}) | self._follow_ups(tasks),
            tasks=tasks,
            attempts=list(self._attempts()),
            tiers_s=self._tiers_s(),
            orders=self._rows("SELECT count(*) FROM outbox")[0][0],
            positions=list(watch.positions(world.broker)),
            letters=list(self._letters()),
            quarantined=[
                row_id
                for (row_id,) in self._rows(
                    "SELECT id FROM quarantine WHERE topic NOT LIKE 'order:%'"
                )
            ],
            letters_again=[
                row_id
                for row_id, headers in self._rows("SELECT id, headers FROM quarantine")
                if {header_names.TASK, header_names.DISPOSITION} <= dict(headers_of(headers)).keys()
            ],
            calls=[call for call, passed in calls if not passed],
            passed=[call for call, passed in calls if passed],
            moves=self._moves,
            counts=list(self._counts()),
            sums=[*counted.sums(self._rows, "sim_count"), counted.of_releases(self._rows)],
            misread=world.store.misread,
            losses=list(self._losses()),
            ordered=list(self._ordered()),
            guards=list(self._guards()),
            replayed=list(self._replayed()),
            declared_lost=list(self._declared_lost()),
            records=list(self._records()),
            commits=[
                Commit(turn, self._topic(place[0], topic_id), place[1], offset)
                for turn, topic_id, place, offset in world.commits
            ],
            outages=world.outages,
            agents=dict(self._agents()),
            failures=world.failures,
            slots=world.plan.slots,
            relief="span" in world.plan.limits,
            revoked_s=None if "kept_answers" in world.plan.limits else dict(world.revoked_s),
            # A database whose clock jumps takes claims from agents that cannot know it.
            lock_uses=() if world.weather.struck["database_clock"] else world.machine.lock_uses,
            uses=world.machine.uses,
            handler_runs=world.machine.handler_runs,
            use_limits=USE_LIMITS,
            type_slots={NARROW: (NARROW_SLOTS, world.machine.most_narrow)},
            lost_outputs=list(self._lost_outputs()),
            overwritten=world.machine.outputs.overwritten,
            blamed=list(self._blamed()),
            hooks_run=[*world.machine.hooks_run, *self._hooks_given_up()],
            hooked=frozenset(
                task_id for task_id, name in self._names.items() if _HOOKED.search(name)
            ),
            lines=self._lines(),
            ends_told=world.machine.ends_told,
            of_batch=dict(
                self._rows(
                    "SELECT t.id, parent_id=0 FROM task t JOIN batch b ON b.id=t.batch_id "
                    "WHERE b.name=?",
                    BATCH,
                )
            ),
            quota=self._quota(),
            joins=list(self._joins()),
            takings=[] if "tpm" in world.plan.quota else world.turns.takings,
            tenants={
                name: Share(weight=tenant.weight, cap=tenant.in_flight)
                for name, tenant in world.plan.tenants.items()
            },
        )

    def _lost_outputs(self) -> Iterator[tuple[int, str]]:
        objects = self._world.machine.outputs.objects
        pointers = {
            task_id: OutputPointer.of_stored(body)
            for task_id, body in self._rows(
                "SELECT task_id, body FROM task_result WHERE codec=?", POINTER
            )
        }
        uncopied = {task_id for (task_id,) in self._rows("SELECT task_id FROM hook")}
        named = list(self._named_objects())
        places = [(task_id, pointer.uri) for task_id, pointer in pointers.items()]
        places += [
            (task_id, uri) for task_id, uri in named if task_id in pointers.keys() - uncopied
        ]
        for task_id, uri in places:
            try:
                pointers[task_id].result_in(objects[uri])
            except KeyError:
                yield task_id, "missing"
            except OutputAlteredError as error:
                yield task_id, f"another one: {error}"
        for task_id, uri in named:
            if task_id not in pointers and uri in objects:
                yield task_id, "there, though the task has not succeeded"

    def _named_objects(self) -> Iterator[tuple[int, str]]:
        """Yield the tasks whose lines name an object."""
        for task_id, line in self._rows("SELECT task_id, body FROM task_input"):
            if b'"output_uri"' in line and is_exact(uri := orjson.loads(line)["output_uri"]):
                yield task_id, uri

    def _blamed(self) -> Iterator[tuple[str, bool]]:
        query = "SELECT task_id FROM task_attempt WHERE error_text LIKE '%its process ended%'"
        for (task_id,) in self._rows(f"{query} AND outcome IN ('retry', 'dead')"):
            name = self._names[task_id]
            kills = _KILLS.search(name) is not None
            yield name, kills or (_FRAGILE.search(name) is not None and ends_process(name))

    def _lines(self) -> frozenset[tuple[str, str]] | None:
        """Return the tasks, and the state of each, on the topic of results; None without one."""
        topic = self._world.broker.topics.get(f"{GROUP}.results")
        if topic is None:
            return None
        lines: set[tuple[str, str]] = set()
        for record in (record for log in topic.logs for record in log.records):
            batch = dict(record.headers)["docllm-batch"].decode()
            name = f"{quote(batch, safe='')}/{quote(record.key or b'', safe='')}"
            lines.add((name, orjson.loads(record.value or b"")["status"]))
        return frozenset(lines)

    def _hooks_given_up(self) -> Sequence[tuple[int, str]]:
        given_up = int(HookState.GAVE_UP)
        query = "SELECT task_id, event FROM hook WHERE state=? AND event<>?"
        return self._rows(query, given_up, HookEvent.OUTPUT)

    def _quota(self) -> Quota | None:
        """Return the limits of the run, and how often Redis failed or agents may have erred."""
        world = self._world
        if world.redis is None:
            return None
        quota = world.plan.quota
        return Quota(
            route="default",
            rpm=quota.get("rpm", 0),
            tpm=quota.get("tpm", 0),
            in_flight=quota.get("in_flight", 0),
            rpd=quota.get("rpd", 0),
            days_s=sorted({0.0, min(MIDNIGHT_S, world.well_s), world.well_s}),
            shares=world.redis.shares or "redis" in world.plan.slow_s,
            faults=world.redis.faults + 2 * ("redis" in world.plan.slow_s),
            agents=len(world.agents),
        )

    def _loaded(self, rows: set[str]) -> frozenset[str]:
        """Return the tasks that must exist.

        Tasks that a cancelled load did not reach, or that the release cannot read yet, are left
        out.
        """
        world = self._world
        direct = {f"{DIRECT}/{line.key}" for line in world.inbox}
        own = {f"{BATCH}/{line.key}" for line in world.lines}
        optional = {name for name in direct if any(kind in name for kind in OF_THE_INBOX)} | (
            own if world.cancelled else set()
        )
        return frozenset((own | direct) - (optional - rows))

    def _follow_ups(self, tasks: Sequence[Task]) -> frozenset[str]:
        """Return the tasks that must exist because their parents have succeeded."""
        parents = [
            task.name
            for task in tasks
            if task.status == Status.SUCCEEDED and _FAMILY.search(task.name)
        ]
        keys = [*map(str, range(CHILDREN)), "all"]
        return frozenset(f"{name}%2F{key}" for name in parents for key in keys)

    def _joins(self) -> Iterator[Join]:
        siblings: dict[int, list[int]] = defaultdict(list)
        for parent, task_id in self._rows(
            "SELECT f.parent_id, f.task_id FROM follow_up f JOIN task t ON t.id=f.task_id "
            "WHERE t.join_role < 2"
        ):
            siblings[parent].append(task_id)
        for task_id, parent, role in self._rows(
            "SELECT id, parent_id, join_role FROM task WHERE join_role > 1"
        ):
            yield Join(task_id, siblings[parent], role == JoinRole.WAIT, TURN)

    def _tiers_s(self) -> list[float]:
        return (
            [duration_s(TIERS[0])]
            if self._world.machine.tiers != TIERS
            else [duration_s(tier) for tier in TIERS]
        )

    # ---- the ledger

    def _tasks(self) -> Iterator[Task]:
        deaths = {
            row[0]: Death(*row[1:])
            for row in self._rows(
                "SELECT task_id, fence, disposition, error_class FROM dead_letter"
            )
        }
        owners = dict(self._rows("SELECT task_id, owner FROM task_result"))
        made = {move.task_id: move.order // TURN for move in self._moves if move.before is None}
        succeeded = {
            move.task_id: move.order // TURN
            for move in self._moves
            if move.after is Status.SUCCEEDED
        }
        parents = dict(self._rows("SELECT id, parent_id FROM task WHERE parent_id > 0"))
        columns = (
            "SELECT t.id, t.status, t.attempt, t.max_attempts, t.replays, t.fence, t.owner, "
            "i.raw_key, i.body"
        )
        tenants = dict(self._rows("SELECT id, tenant FROM task"))
        times, unchanged = dict(self._times()), set(self._unchanged())
        stopped = watch.stopped(self._world)
        for task_id, *rest in self._rows(
            f"{columns} FROM task t JOIN task_input i ON i.task_id=t.id"
        ):
            facts: dict[str, Any] = {
                "results": int(task_id in owners),
                "result_owner": owners.get(task_id),
                "death": deaths.get(task_id),
                "with_parent": task_id not in parents
                or made.get(task_id) == succeeded.get(parents[task_id]),
                "tenant": tenants[task_id],
                "as_changed": task_id not in unchanged,
                "stopped": task_id in stopped,
            }
            if task_id in times:
                facts["not_before_s"] = times[task_id]
            yield Task(task_id, self._names[task_id], *rest, **facts)

    def _unchanged(self) -> Iterator[int]:
        """Yield the tasks that answered their line's prompt after a replay with another one."""
        answers = (
            "SELECT t.id, r.codec, r.body FROM task_change c "
            "JOIN replay_run x ON x.id=c.run_id AND x.selection LIKE '%Once more%' "
            "JOIN task t ON t.id=c.task_id AND t.type='document' "
            "JOIN task_result r ON r.task_id=t.id"
        )
        for task_id, codec, body in self._rows(answers):
            is_huge = "huge" in self._names[task_id]  # its answer is random
            if codec in _ANSWERS and not is_huge and ANSWERED_ANEW not in unpacked(codec, body):
                yield task_id

    def _times(self) -> Iterator[tuple[int, float]]:
        """Yield the tasks whose lines have a `not_before`, with it."""
        # LIKE finds nothing in a blob in some builds of SQLite.
        lines = (
            "SELECT task_id, body FROM task_input"
            " WHERE instr(body, CAST('\"not_before\"' AS BLOB)) > 0"
        )
        for task_id, body in self._rows(lines):
            at = datetime.fromisoformat(orjson.loads(body)["not_before"])
            yield task_id, at.timestamp() - EPOCH_S

    def _read_moves(self) -> Iterator[Move]:
        for (
            turn,
            at,
            clock_s,
            task_id,
            before,
            after,
            old_owner,
            owner,
            old_fence,
            fence,
            due,
            *rises,
        ) in self._rows("SELECT * FROM sim_move"):
            was = None if before is None else Status(before)
            due_s = seconds(due) - EPOCH_S
            yield Move(
                turn,
                seconds(at) - EPOCH_S,
                clock_s,
                task_id,
                was,
                Status(after),
                old_owner,
                owner,
                old_fence,
                fence,
                due_s,
                *rises,
            )

    def _attempts(self) -> Iterator[Attempt]:
        ended_s = {(move.task_id, move.old_owner): move.at_s for move in self._moves if move.ends}
        for task_id, owner, attempt, outcome, error_class in self._rows(
            "SELECT task_id, owner, attempt, outcome, error_class FROM task_attempt ORDER BY id"
        ):
            yield Attempt(
                self._names[task_id],
                attempt,
                outcome,
                error_class,
                settled_s=ended_s.get((task_id, owner), 0.0),
                owner=owner,
            )

    def _losses(self) -> Iterator[Loss]:
        lost = "SELECT task_id, lost_owner FROM task_attempt WHERE outcome='lost'"
        yield from (Loss(task_id, owner) for task_id, owner in self._rows(lost))
        for task_id, times in self._rows("SELECT id, losses FROM task"):
            yield Loss(task_id, None, times)

    def _counts(self) -> Iterator[Count]:
        for turn, at, batch_id, kind, route, state, disposition, delta, outcome in self._rows(
            "SELECT turn, at, batch_id, type, route, state, disposition, delta, outcome "
            "FROM sim_count"
        ):
            yield Count(
                turn,
                seconds(at) - EPOCH_S,
                batch_id,
                kind,
                route,
                Status(state),
                disposition,
                delta,
                outcome,
            )

    def _ordered(self) -> Iterator[Ordered]:
        waiting: dict[int, dict[Item, int]] = defaultdict(dict)
        for turn, order_id, destination, blob in self._rows(
            "SELECT * FROM sim_order ORDER BY turn"
        ):
            if destination in {"dlq", "results"}:
                continue
            placed_items, items = waiting[order_id], set(outbox.unpack(blob))
            for item in [item for item in placed_items if item not in items]:
                yield Ordered(item.id, item.fence, placed_items.pop(item), turn)
            for item in items:
                placed_items.setdefault(item, turn)
        for placed_items in waiting.values():
            for item, placed in placed_items.items():
                yield Ordered(item.id, item.fence, placed, None)

    def _guards(self) -> Iterator[Guarded]:
        """Yield each guard with its interval; a raised guard holds from its transaction's end."""
        raised: dict[int, tuple[int, tuple[Any, ...]]] = {}
        looked = [
            (guard_id, turn)
            for turn, guard_id in self._rows("SELECT * FROM sim_look ORDER BY turn")
        ]

        def seen(guard_id: int, opened: int | None) -> Guarded:
            since, (batch_id, kind, route, cause) = raised.pop(guard_id)
            tried = [
                turn
                for looked_id, turn in looked
                if looked_id == guard_id and since <= turn and (opened is None or turn < opened)
            ]
            return Guarded(batch_id, kind, route, since, opened, cause, tried)

        for turn, guard_id, *key, up in self._rows("SELECT * FROM sim_guard ORDER BY turn"):
            if up:
                raised[guard_id] = ((turn // TURN + 1) * TURN, tuple(key))
            elif guard_id in raised:
                yield seen(guard_id, turn)
        for guard_id in list(raised):
            yield seen(guard_id, None)

    def _replayed(self) -> Iterator[Replayed]:
        query = (
            "SELECT i.run_id, i.item_id, i.fence, i.state FROM replay_item i JOIN replay_run "
            "r ON r.id=i.run_id WHERE i.kind=?"
        )
        for run_id, item_id, fence, state in self._rows(
            f"{query} AND r.stored_at IS NOT NULL", outbox.TASK
        ):
            yield Replayed(
                run_id,
                item_id,
                fence,
                applied=state == ItemState.REPLAYED,
                waits=state == ItemState.WAITS,
            )

    def _declared_lost(self) -> Iterator[DeclaredLost]:
        for turn, clock_s, agent_id, lost_at, seen_at in self._rows(
            "SELECT * FROM sim_lost WHERE lost_at IS NOT NULL"
        ):
            yield DeclaredLost(turn, clock_s, agent_id, seconds(lost_at) - seconds(seen_at))

    # ---- the bus

    def _topic(self, name: str, topic_id: str) -> str:
        return f"{name} of {topic_id}"

    def _topics(self) -> Iterator[tuple[str, Topic]]:
        """Yield every topic that agents read, including recreated ones."""
        broker = self._world.broker
        for name, topic in (*broker.deleted, *broker.topics.items()):
            if not name.endswith((".dlq", ".results")):
                yield name, topic

    def _records(self) -> Iterator[Stored]:
        kept = {tuple(place): turn for turn, *place in self._rows("SELECT * FROM sim_kept")}
        bodies = {
            task_id: (key, body)
            for task_id, key, body in self._rows(
                "SELECT id, task_key, body FROM task JOIN task_input ON task_id=id"
            )
        }
        came = {move.task_id: move.order for move in reversed(self._moves) if move.before is None}
        known = {body: came[task_id] for task_id, (_, body) in bodies.items()}
        letters = {(task_id, body): came[task_id] for task_id, (_, body) in bodies.items()}
        letters |= {(task_id, None): came[task_id] for task_id in bodies}
        for row_id, value, *place in self._rows(
            "SELECT id, record_value, topic_id, topic, part, record_offset FROM quarantine"
        ):
            letters |= dict.fromkeys(((-row_id, value), (-row_id, None)), kept.get(tuple(place)))
        for name, topic in self._topics():
            for number, log in enumerate(topic.logs):
                for offset, stored in enumerate(log.records):
                    task_id, fence = self._named(stored, bodies)
                    where = (topic.topic_id, name, number, offset)
                    yield Stored(
                        self._topic(name, topic.topic_id),
                        number,
                        offset,
                        stored.turn,
                        task_id,
                        fence,
                        kept.get(where),
                        letters.get((_subject(stored), stored.value))
                        or (known.get(stored.value) if name.endswith(".inbox") else None),
                        stored.lost,
                    )

    def _named(self, stored: Any, bodies: dict[int, tuple[bytes, bytes]]) -> tuple[int | None, int]:
        """Return task and fence of a record that is one of our publications."""
        if is_letter(stored.headers):
            return None, 0
        try:
            publication = decode(stored.headers)
        except NotOursError:
            return None, 0
        genuine = (
            publication.ledger == LEDGER_ID
            and publication.fence <= _FENCES
            and bodies.get(publication.task_id) == (stored.key, stored.value)
        )
        return (publication.task_id, publication.fence) if genuine else (None, 0)

    def _letters(self) -> Iterator[Letter]:
        for log in self._world.broker.topics[f"{GROUP}.dlq"].logs:
            for stored in log.records:
                headers = dict(stored.headers)
                pointer = "docllm-pointer" in headers
                if "docllm-quarantine" in headers:
                    yield Letter(
                        stored.key,
                        stored.value,
                        quarantine_id=int(headers["docllm-quarantine"]),
                        pointer=pointer,
                    )
                else:
                    why = [
                        headers.get(name, b"").decode()
                        for name in ("docllm-disposition", "docllm-error-class")
                    ]
                    death = Death(int(headers["docllm-fence"]), *why)
                    yield Letter(
                        stored.key,
                        stored.value,
                        int(headers["docllm-task"]),
                        death=death,
                        pointer=pointer,
                    )

    # ---- the LLM and the programs

    def _calls(self) -> Iterator[tuple[Call, bool]]:
        """Yield each call, and whether its attempt went on to another route after it."""
        newest = {(made.task_id, made.owner): made for made in self._world.llm.calls}
        claims = {(move.task_id, move.owner): move for move in self._moves if move.claims}
        earlier: set[tuple[int, int, str]] = set()
        for made in self._world.llm.calls:
            claim = None
            if made.task_id:
                claimed = claims.get((made.task_id, made.owner))
                expired = claimed is not None and seconds(made.expires_at) - EPOCH_S < claimed.at_s
                cancelled = claimed is not None and self._cancelled(made.batch_id, claimed.order)
                claim = Claim(
                    made.program,
                    Status(made.status),
                    made.owner,
                    expired,
                    cancelled,
                    self._known(made),
                )
            status = int(made.ended) if made.ended.isdigit() else 0
            passed = made.task_id > 0 and newest[made.task_id, made.owner].route != made.route
            call = Call(
                made.name, made.at_s, made.ended_s, status, made.utc_s - EPOCH_S, made.label,
                order=made.turn, task_id=made.task_id, route=made.route, claim=claim,
                again=made.again and (made.task_id, made.owner, made.route) in earlier,
                good=made.good and _PLAIN.search(made.name) is not None,
                tokens_in=TOKENS_IN if made.good else 0,
                tokens_out=TOKENS_OUT if made.good else 0,
                connected=made.ended != ErrorClass.NETWORK,
            )  # fmt: skip
            earlier.add((made.task_id, made.owner, made.route))
            yield call, passed

    def _known(self, made: Made) -> bool:
        """Return whether the program that called knew the type of its task."""
        if f"{LATER}-" not in made.name or made.at_s >= self._world.well_s:
            return True
        return knows_later(made.program)

    def _cancelled(self, batch_id: int, order: float) -> bool:
        changes = [cancelled for turn, cancelled in self._cancels[batch_id] if turn < order]
        return bool(changes and changes[-1])

    def _agents(self) -> Iterator[tuple[int, Incarnation]]:
        world, struck = self._world, self._world.weather.struck
        ends: dict[int, list[tuple[int, bool]]] = defaultdict(list)
        for turn, _, agent_id, lost_at, _ in self._rows("SELECT * FROM sim_lost ORDER BY turn"):
            ends[agent_id].append((turn, lost_at is not None))
        served = not struck["database_away"] and not struck["database_clock"]
        at_once = (
            "database" not in world.plan.slow_s
            and not struck["lost_ack"]
            and not struck["database_clock"]
        )
        for agent_id, program in world.incarnations.items():
            gone = next((turn for turn, _ in ends[agent_id]), None)
            lost = next((turn for turn, was_lost in ends[agent_id] if was_lost), None)
            if program is not None:
                yield (
                    agent_id,
                    Incarnation(
                        agent_id,
                        program.name,
                        program.began_s,
                        program.asked_s,
                        program.ended_s,
                        lost,
                        gone,
                        [(stop[0], stop[1]) for stop in program.main.stops],
                        [(stop[0], stop[1]) for stop in program.beat_stops],
                        served,
                        served_at_once=at_once and agent_id in program.leases,
                    ),
                )


def _subject(stored: Any) -> int:
    """Return the task of a dead letter that was written back, or its quarantined record, negative.

    Returns 0 for any other record.
    """
    if is_letter(stored.headers):
        return int(dict(stored.headers)[header_names.TASK])
    return -int(dict(stored.headers).get(header_names.QUARANTINE, 0))

"""One member of a consumer group: joins, beats, commits, exchanges partitions, removes the dead.

A group is a set of rows that every member reconciles in its own write transactions; there is no
coordinator. A partition has an owner, the member that reads it, and an heir, the member that will
read it. A partition moves in two steps. First its owner releases it in the transaction that commits
the marked offsets, or the owner is found dead. Then the heir takes it. Only the owner's commits are
accepted.

A member id is never reused, so an evicted member that comes back can change nothing under its old
name.
"""

import sqlite3
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from docllm.producer.bus.embedded.file import BusFile
from docllm.producer.bus.embedded.life_lock import MEMBERS, LifeLock, forget, is_dead
from docllm.schemas.runtime.clock import Clock

SESSION_S = 10.0
BEAT_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class AssignablePartition:
    """A partition to assign.

    `holder` is the member that has the partition or was promised it.
    """

    partition_id: int
    topic_id: str
    holder: str | None


def balance(
    partitions: Sequence[AssignablePartition], subscriptions: Mapping[str, set[str]]
) -> dict[int, str | None]:
    """Return the member for each partition id, None where nobody subscribes to its topic.

    `subscriptions` maps each living member to its topic ids. The same input gives the same answer
    in every process.
    """
    loads = dict.fromkeys(sorted(subscriptions), 0)
    heirs: dict[int, str | None] = {}
    for partition in partitions:
        is_subscribed = partition.topic_id in subscriptions.get(partition.holder or "", ())
        heirs[partition.partition_id] = partition.holder if is_subscribed else None
        _count(loads, heirs[partition.partition_id], 1)
    for partition in partitions:
        if heirs[partition.partition_id] is None:
            heirs[partition.partition_id] = _least(loads, partition, subscriptions)
            _count(loads, heirs[partition.partition_id], 1)
    while _improve(loads, partitions, heirs, subscriptions):
        pass
    return heirs


def _count(loads: dict[str, int], member: str | None, change: int) -> None:
    if member is not None:
        loads[member] += change


def _least(
    loads: Mapping[str, int], partition: AssignablePartition, subscriptions: Mapping[str, set[str]]
) -> str | None:
    subscribers = [member for member in loads if partition.topic_id in subscriptions[member]]
    return min(subscribers, key=loads.__getitem__, default=None)


def _improve(
    loads: dict[str, int],
    partitions: Sequence[AssignablePartition],
    heirs: dict[int, str | None],
    subscriptions: Mapping[str, set[str]],
) -> bool:
    """Move one partition across the widest gap in load; return False if no gap is two or more.

    Each move makes the loads more even, so the moves come to an end.
    """
    widest, move = 1, None
    for partition in partitions:
        heir, least = heirs[partition.partition_id], _least(loads, partition, subscriptions)
        if heir is not None and least is not None and loads[heir] - loads[least] > widest:
            widest, move = loads[heir] - loads[least], (partition.partition_id, heir, least)
    if move is None:
        return False
    partition_id, heir, least = move
    heirs[partition_id] = least
    _count(loads, heir, -1)
    _count(loads, least, 1)
    return True


@dataclass(frozen=True, slots=True)
class Holding:
    """A partition that this member owns, as one transaction saw it.

    It carries the partition's watermarks and the group's committed offset.
    """

    partition_id: int
    topic: str
    topic_id: str
    number: int
    low: int
    high: int
    committed: int | None


@dataclass(frozen=True, slots=True)
class PassResult:
    """The result of one pass.

    `owned_before` are the partition ids that this member still owned when the pass began;
    `holdings` are the partitions that it owns after the pass.
    """

    evicted: bool
    owned_before: frozenset[int]
    holdings: tuple[Holding, ...]


class MemberView(NamedTuple):
    """What a member sees without a pass: whether it needs one, and the partitions it owns."""

    needs_pass: bool
    holdings: tuple[Holding, ...]


class Member:
    """A member, from its first pass until `leave` or `close`."""

    def __init__(self, *, file: BusFile, group_id: str, clock: Clock) -> None:
        self._file = file
        self._group = group_id
        self._clock = clock
        self._locks = file.path.parent / MEMBERS
        self._take_new_identity()

    def _take_new_identity(self) -> None:
        self.id = uuid.uuid4().hex
        self._lock = LifeLock(self._locks, member=self.id)
        self._joined = False
        self._beat_at_s = self._awake_since_s = self._clock.now_s()

    def beat_is_due(self) -> bool:
        """Return whether the next pass is due now because of the heartbeat."""
        return not self._joined or self._clock.now_s() - self._beat_at_s >= BEAT_EVERY_S

    def make_pass(
        self, topic_ids: frozenset[str], marks: Mapping[int, int], dead: Iterable[str] = ()
    ) -> PassResult:
        """Make one pass in one transaction: commit, heartbeat, remove the dead, move partitions.

        `marks` maps partition ids to the offsets to commit. The pass removes the `dead` members,
        reconciles the group, then releases and takes partitions. Because it is one transaction, a
        member that takes a partition over finds its last commit.

        If this member was evicted meanwhile, nothing is committed, and the next pass joins under a
        new id.
        """
        now_s = self._clock.now_s()
        with self._file.write() as db:
            evicted = not self._beat_as_member(db, now_s)
            owned_before = self._owned(db)
            if not evicted:
                self._pass_as_member(db, now_s, topic_ids, marks, dead)
            holdings = self._holdings(db)
        self._note_pass(now_s, evicted=evicted)
        if evicted:
            return PassResult(evicted, frozenset(), ())
        return PassResult(evicted, owned_before, holdings)

    def _note_pass(self, now_s: float, *, evicted: bool) -> None:
        self._joined = True
        self._beat_at_s = now_s
        if evicted:
            old_id, old_lock = self.id, self._lock
            # Take the new lock first: if that fails, this member still holds its old lock, and the
            # next pass is treated as evicted again.
            self._take_new_identity()
            old_lock.release()
            forget(self._locks, old_id)

    def _beat_as_member(self, db: sqlite3.Connection, now_s: float) -> bool:
        """Join, or send a heartbeat; return whether this is still a member."""
        if not self._joined:
            db.execute(
                "INSERT OR IGNORE INTO member VALUES (?, ?, ?)", (self.id, self._group, now_s)
            )
            return True
        return db.execute("UPDATE member SET seen_s=? WHERE id=?", (now_s, self.id)).rowcount == 1

    def _pass_as_member(
        self,
        db: sqlite3.Connection,
        now_s: float,
        topic_ids: frozenset[str],
        marks: Mapping[int, int],
        dead: Iterable[str],
    ) -> None:
        self._commit(db, marks)
        self._subscribe(db, topic_ids)
        self._remove_dead(db, now_s, dead)
        self._reconcile(db)
        self._release(db)
        self._take(db)

    def _release(self, db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE ownership SET owner=NULL WHERE group_id=? AND owner=? AND heir IS NOT owner",
            (self._group, self.id),
        )

    def _take(self, db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE ownership SET owner=heir WHERE group_id=? AND heir=? AND owner IS NULL",
            (self._group, self.id),
        )

    def _commit(self, db: sqlite3.Connection, marks: Mapping[int, int]) -> None:
        db.executemany(
            'INSERT INTO committed (group_id, partition_id, "offset")'
            " SELECT group_id, partition_id, ? FROM ownership"
            " WHERE group_id=? AND partition_id=? AND owner=?"
            ' ON CONFLICT (group_id, partition_id) DO UPDATE SET "offset"=excluded."offset"',
            [
                (offset, self._group, partition_id, self.id)
                for partition_id, offset in marks.items()
            ],
        )

    def _subscribe(self, db: sqlite3.Connection, topic_ids: frozenset[str]) -> None:
        rows = db.execute(
            "SELECT topic_id FROM subscription WHERE member_id=?", (self.id,)
        ).fetchall()
        if {row[0] for row in rows} != topic_ids:
            db.execute("DELETE FROM subscription WHERE member_id=?", (self.id,))
            db.executemany(
                "INSERT INTO subscription VALUES (?, ?)",
                [(self.id, topic_id) for topic_id in sorted(topic_ids)],
            )

    def _remove_dead(self, db: sqlite3.Connection, now_s: float, dead: Iterable[str]) -> None:
        # After it was itself paused, a member cannot judge other heartbeats until the others have
        # had a session timeout to send one.
        if now_s - self._beat_at_s > SESSION_S / 2:
            self._awake_since_s = now_s
        if now_s - self._awake_since_s > SESSION_S:
            late_members = db.execute(
                "SELECT id FROM member WHERE group_id=? AND seen_s<?",
                (self._group, now_s - SESSION_S),
            ).fetchall()
            dead = {*dead, *(row[0] for row in late_members)}
        for member in dead:
            db.execute("DELETE FROM member WHERE id=?", (member,))
            db.execute("DELETE FROM subscription WHERE member_id=?", (member,))
            forget(self._locks, member)

    def _reconcile(self, db: sqlite3.Connection) -> None:
        """Choose the heir of each partition; members that are gone own nothing any more."""
        living: dict[str, set[str]] = {
            row[0]: set()
            for row in db.execute("SELECT id FROM member WHERE group_id=?", (self._group,))
        }
        for member, topic_id in db.execute(
            "SELECT member_id, topic_id FROM subscription"
            " JOIN member ON member.id=member_id WHERE group_id=?",
            (self._group,),
        ):
            living[member].add(topic_id)
        rows = db.execute(
            "SELECT p.id, p.topic_id, o.owner, o.heir FROM partition p"
            " LEFT JOIN ownership o ON o.group_id=? AND o.partition_id=p.id"
            " WHERE o.partition_id IS NOT NULL"
            " OR p.topic_id IN (SELECT topic_id FROM subscription WHERE member_id=?)"
            " ORDER BY p.id",
            (self._group, self.id),
        ).fetchall()
        heirs = balance(
            [AssignablePartition(number, topic_id, heir) for number, topic_id, _, heir in rows],
            living,
        )
        changed = [
            (self._group, partition, owner if owner in living else None, heirs[partition])
            for partition, _, owner, heir in rows
            if heir != heirs[partition] or (owner is not None and owner not in living)
        ]
        db.executemany("INSERT OR REPLACE INTO ownership VALUES (?, ?, ?, ?)", changed)

    def _owned(self, db: sqlite3.Connection) -> frozenset[int]:
        rows = db.execute(
            "SELECT partition_id FROM ownership WHERE group_id=? AND owner=?",
            (self._group, self.id),
        )
        return frozenset(row[0] for row in rows)

    def _holdings(self, db: sqlite3.Connection) -> tuple[Holding, ...]:
        rows = db.execute(
            'SELECT p.id, t.name, p.topic_id, p.number, p.low, p.high, c."offset" FROM ownership o'
            " JOIN partition p ON p.id=o.partition_id JOIN topic t USING (topic_id)"
            " LEFT JOIN committed c ON c.group_id=o.group_id AND c.partition_id=p.id"
            " WHERE o.group_id=? AND o.owner=? ORDER BY p.id",
            (self._group, self.id),
        )
        return tuple(Holding(*row) for row in rows)

    def watch(self) -> MemberView:
        """Return whether a pass is needed, and the partitions this member owns; write nothing.

        A pass is needed when this member was evicted, or has a partition to take or to release.
        """
        with self._file.snapshot() as db:
            is_member = (
                db.execute("SELECT 1 FROM member WHERE id=?", (self.id,)).fetchone() is not None
            )
            waiting_move = db.execute(
                "SELECT 1 FROM ownership WHERE group_id=?1"
                " AND ((heir=?2 AND owner IS NULL) OR (owner=?2 AND heir IS NOT ?2))",
                (self._group, self.id),
            ).fetchone()
            return MemberView(waiting_move is not None or not is_member, self._holdings(db))

    def dead(self) -> set[str]:
        """Return the other members of this group whose lock is free."""
        rows = self._file.all(
            "SELECT id FROM member WHERE group_id=? AND id<>?", (self._group, self.id)
        )
        return {member for (member,) in rows if is_dead(self._locks, member)}

    def leave(self, marks: Mapping[int, int]) -> frozenset[int]:
        """Commit `marks`, release all partitions and leave; return the ids still owned until now.

        The caller must call `close` afterwards.
        """
        with self._file.write() as db:
            owned_before = self._owned(db)
            self._commit(db, marks)
            db.execute("DELETE FROM member WHERE id=?", (self.id,))
            db.execute("DELETE FROM subscription WHERE member_id=?", (self.id,))
            self._reconcile(db)
        forget(self._locks, self.id)
        return owned_before

    def close(self) -> None:
        """Free the lock without leaving; the other members take over at once."""
        self._lock.release()

"""The ledger's tables, as `migrations/` makes them.

Rows that change often have a fixed width and are NOT NULL with sentinels, because a NULL that
becomes a value moves the row. Text is in other tables.

Tested by tests/integration/test_migrations.py.
"""

from typing import Any

from sqlalchemy import Column, Index, Integer, MetaData, SmallInteger, Table, UniqueConstraint, text

from schemas.ledger.sql import (
    LONG_AGO,
    NEVER,
    BigId,
    Blob,
    LongText,
    Tiny,
    UtcTime,
    binary,
    name,
    utc_default,
    varbinary,
)

metadata = MetaData()

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin",
    "mariadb_engine": "InnoDB", "mariadb_charset": "utf8mb4", "mariadb_collate": "utf8mb4_bin",
}  # fmt: skip


def _table(title: str, *parts: Column[Any] | Index | UniqueConstraint) -> Table[Any]:
    # If SQLite reused an id, a relay could delete the wrong publish order.
    counted = any(isinstance(part, Column) and part.autoincrement is True for part in parts)
    return Table(title, metadata, *parts, sqlite_autoincrement=counted, **_OPTIONS)


def _key(title: str = "id", *, auto: bool = False) -> Column[int]:
    return Column(title, BigId, primary_key=True, autoincrement=auto)


def _count(title: str, default: int = 0) -> Column[int]:
    return Column(title, SmallInteger, nullable=False, server_default=text(str(default)))


def _big(title: str) -> Column[int]:
    return Column(title, BigId, nullable=False, server_default=text("0"))


def _word(title: str, length: int) -> Column[str]:
    return Column(title, name(length), nullable=False, server_default=text("''"))


def _key_word(title: str, length: int) -> Column[str]:
    return Column(title, name(length), primary_key=True)


def _now(title: str = "created_at") -> Column[Any]:
    return Column(title, UtcTime, nullable=False, server_default=utc_default())


def _at(title: str, otherwise: str) -> Column[Any]:
    """Return a column for a time that is not always known."""
    return Column(title, UtcTime, nullable=False, server_default=text(f"'{otherwise}'"))


ledger = _table(
    "ledger",
    Column("ledger_id", binary(16), primary_key=True),
    # The oldest schema revision whose programs can work with the present schema.
    _word("compatible_from", 32),
)

group_info = _table(
    "group_info",
    Column("group_name", name(100), primary_key=True),
    _word("cluster_id", 100),
    Column("topic_ids", LongText, nullable=False),
)

id_block = _table(
    "id_block", Column("name", name(32), primary_key=True), Column("next", BigId, nullable=False)
)

agent = _table(
    "agent",
    _key(),
    _word("name", 191),
    _word("group_name", 100),
    _word("version", 32),
    _word("notice", 500),
    _now("started_at"),
    _now("seen_at"),
    _now("steady_since"),
    Column("stopped_at", UtcTime),
    Column("lost_at", UtcTime),
    # What the agent said with its last heartbeat, as JSON: `schemas/task/agent_report.py`.
    Column("report", LongText),
    _word("revision", 32),  # the schema revision that the agent works with
    Index("ix_agent_group", "group_name", "seen_at"),
)

batch = _table(
    "batch",
    _key(auto=True),
    Column("name", name(191), nullable=False, unique=True),
    _word("group_name", 100),
    _now(),
    Column("closed_at", UtcTime),
    Column("cancelled_at", UtcTime),
    Column("archived_at", UtcTime),
    _word("note", 500),
    Column("options", LongText),  # what holds for all tasks of the batch, as JSON
)

task = _table(
    "task",
    _key(),
    Column("batch_id", BigId, nullable=False),
    Column("task_key", varbinary(191), nullable=False),
    Column("digest", binary(16), nullable=False),
    _word("type", 64),
    _word("tenant", 64),
    Column("status", Tiny, nullable=False, server_default=text("0")),
    _count("attempt"),
    _count("max_attempts", 5),
    _count("lease_losses"),
    _count("replays"),
    Column("fence", Integer, nullable=False, server_default=text("0")),
    _big("owner"),
    # When the task waits: its earliest next claim. While it is processing: the hard deadline of its
    # claim. When it is final: NEVER.
    _now("due_at"),
    _at("expires_at", NEVER),
    _now(),
    # The destination of the task's newest record, as in `outbox`; empty in rows of older versions.
    _word("carrier", 64),
    # The route of the last attempt that ended otherwise than in success. A count of a task that
    # enters or leaves a final state names this route.
    _word("route", 64),
    _big("parent_id"),  # the task that ordered this one
    _count("depth"),  # how many ancestors it has
    _at("claimed_at", LONG_AGO),  # when its last claim was made
    UniqueConstraint("batch_id", "task_key", name="uq_task_key"),
    Index("ix_task_due", "status", "due_at"),
    Index("ix_task_open", "batch_id", "status", "due_at"),
    Index("ix_task_batch", "batch_id"),  # with the primary key in it: first and last id of a batch
)

task_input = _table(
    "task_input",
    _key("task_id"),
    Column("raw_key", Blob),
    Column("headers", Blob),
    Column("body", Blob, nullable=False),
)

task_result = _table(
    "task_result",
    _key("task_id"),
    _big("owner"),
    _now(),
    _word("model", 191),
    _big("tokens_in"),
    _big("tokens_out"),
    _big("cost_micro"),
    _word("trace_id", 191),
    _big("duration_ms"),
    Column("codec", Tiny, nullable=False, server_default=text("0")),
    Column("body", Blob, nullable=False),
    _word("route", 64),
    _big("tokens_cached"),  # of `tokens_in`
    _big("unsure_micro"),  # of `cost_micro`: estimated, because no usage is known
)

task_attempt = _table(
    "task_attempt",
    _key(auto=True),
    Column("task_id", BigId, nullable=False),
    _big("owner"),
    _count("attempt"),
    Column("fence", Integer, nullable=False),
    _word("outcome", 32),
    _word("error_class", 64),
    _word("error_text", 2000),
    _word("trace_id", 191),
    _now("started_at"),
    _big("duration_ms"),
    _big("tokens_in"),
    _big("tokens_out"),
    _big("cost_micro"),
    _word("route", 64),
    _big("tokens_cached"),  # of `tokens_in`
    _big("unsure_micro"),  # of `cost_micro`: estimated, because no usage is known
    _word("model", 191),
    Index("ix_attempt_task", "task_id", "owner"),
)

dead_letter = _table(
    "dead_letter",
    _key("task_id"),
    Column("fence", Integer, nullable=False),
    _word("disposition", 32),
    _word("error_class", 64),
    Column("fingerprint", binary(16), nullable=False),
    _word("error_text", 2000),
    _now("died_at"),
    _word("origin_topic", 249),
    Column("origin_partition", Integer, nullable=False, server_default=text("-1")),
    Column("origin_offset", BigId, nullable=False, server_default=text("-1")),
    Column("origin_timestamp_ms", BigId, nullable=False, server_default=text("0")),
    # Copied from the task, so that no screen reads a row of `task` for each dead letter.
    _big("batch_id"),
    _word("type", 64),
    _word("tenant", 64),
    _count("replays"),
    _at("expires_at", NEVER),
    # Of the last attempt.
    _word("route", 64),
    _word("model", 191),
    # The sums over all attempts of the task.
    _big("attempts"),
    _big("tokens_in"),
    _big("tokens_out"),
    _big("cost_micro"),
    Index("ix_dead_fingerprint", "fingerprint"),
    Index("ix_dead_group", "batch_id", "fingerprint", "disposition"),
    Index("ix_dead_died", "died_at"),
    Index("ix_dead_replays", "replays"),
    Index("ix_dead_expires", "expires_at"),
)

quarantine = _table(
    "quarantine",
    _key(auto=True),
    _word("group_name", 100),
    _word("topic_id", 64),
    _word("topic", 249),
    Column("part", Integer, nullable=False),
    Column("record_offset", BigId, nullable=False),
    Column("record_key", Blob),
    Column("record_value", Blob),
    Column("value_digest", binary(16)),
    Column("headers", Blob),
    _word("disposition", 32),
    _word("error_text", 2000),
    _now(),
    Column("seen", Integer, nullable=False, server_default=text("1")),
    Column("fingerprint", binary(16)),
    Column("replayed_at", UtcTime),
    UniqueConstraint("topic_id", "topic", "part", "record_offset", name="uq_quarantine_record"),
)

outbox = _table(
    "outbox",
    _key(auto=True),
    _word("group_name", 100),
    _word("destination", 64),
    _now("due_at"),
    Column("items", Blob, nullable=False),
    Index("ix_outbox_due", "group_name", "due_at"),
)

tally = _table(
    "tally",
    _key(auto=True),
    _now(),
    Column("batch_id", BigId, nullable=False),
    _word("type", 64),
    _word("route", 64),
    Column("state", Tiny, nullable=False),
    _word("outcome", 64),
    Column("fingerprint", binary(16), nullable=False),
    Column("delta", BigId, nullable=False),
    _big("tokens_in"),
    _big("tokens_out"),
    _big("cost_micro"),
    _word("disposition", 32),  # of a death
    _word("model", 191),
    _word("tenant", 64),
    _big("tokens_cached"),
    _big("unsure_micro"),
    # Of tasks that died or were replayed: the sums over all their attempts, with the sign of
    # `delta`. The columns without `dead_` have the attempt that is counted here.
    _big("dead_attempts"),
    _big("dead_tokens_in"),
    _big("dead_tokens_out"),
    _big("dead_cost_micro"),
    Index("ix_tally_batch", "batch_id", "created_at"),
    Index("ix_tally_key", "batch_id", "type", "route", "created_at"),
    Index("ix_tally_created", "created_at"),
)

# The roll-ups of `tally`. Compaction alone writes them: it moves old rows of `tally` into all three
# in one transaction. A reader adds the rows that are still in `tally`, in one statement.

tally_sum = _table(
    "tally_sum",
    _key("batch_id"),
    _key_word("type", 64),
    _key_word("route", 64),
    _key_word("model", 191),
    _key_word("tenant", 64),
    Column("state", Tiny, primary_key=True, autoincrement=False),
    _key_word("outcome", 64),
    _key_word("disposition", 32),
    _big("delta"),
    _big("entered"),  # the sum of the positive deltas: it never falls
    _big("tokens_in"),
    _big("tokens_out"),
    _big("tokens_cached"),
    _big("cost_micro"),
    _big("unsure_micro"),
    _at("newest_at", LONG_AGO),  # of the newest row with a positive delta
)

failure_group = _table(
    "failure_group",
    _key("batch_id"),
    _key_word("type", 64),
    _key_word("tenant", 64),
    _key_word("route", 64),
    _key_word("disposition", 32),
    Column("fingerprint", binary(16), primary_key=True),
    _word("error_class", 64),
    _big("dead"),  # how many tasks are dead now
    _big("entered"),  # how many died; it never falls
    _at("first_at", NEVER),
    _at("last_at", LONG_AGO),
    _big("sample_task"),  # one of the tasks that died; it may be replayed by now
    # The sums over all attempts of the tasks that are dead now.
    _big("attempts"),
    _big("tokens_in"),
    _big("tokens_out"),
    _big("cost_micro"),
    Index("ix_failure_fingerprint", "fingerprint"),
)

tally_series = _table(
    "tally_series",
    _key_word("group_name", 100),
    Column("width_s", SmallInteger, primary_key=True, autoincrement=False),  # 60 or 3600
    Column("starts_at", UtcTime, primary_key=True),
    _key_word("route", 64),
    Column("state", Tiny, primary_key=True, autoincrement=False),
    _key_word("outcome", 64),
    _big("entered"),
    _big("tokens_in"),
    _big("tokens_out"),
    _big("cost_micro"),
    Index("ix_series_time", "width_s", "starts_at"),
)

audit = _table(
    "audit",
    _key(auto=True),
    _now(),
    _word("actor", 191),
    _word("action", 64),
    _word("detail", 2000),
    _word("group_name", 100),
    _word("kind", 32),  # of the object: batch, task, guard, replay, route, topic
    _word("object", 191),  # its name or number
    _big("items"),  # how many tasks or records it concerns
    _word("origin", 16),  # cli or agent; later api
    Index("ix_audit_group", "group_name", "created_at"),
)

replay_run = _table(
    "replay_run",
    _key(auto=True),
    _word("group_name", 100),
    _now(),
    _word("actor", 191),
    Column("selection", LongText, nullable=False),
    Column("stored_at", UtcTime),  # all items are stored: from here on the run can only be resumed
    _now("next_at"),  # when the run's rate lets the next items pass
    Column("ended_at", UtcTime),
    # How many items there are, and how many of them are in each state that ends their wait.
    _big("total"),
    _big("replayed"),
    _big("skipped"),
    _big("unread"),
    Index("ix_replay_open", "group_name", "ended_at"),
)

replay_item = _table(
    "replay_item",
    _key("run_id"),
    # As in an order's items: task or quarantine.
    Column("kind", Tiny, primary_key=True, autoincrement=False),
    _key("item_id"),
    Column("fence", Integer, nullable=False),  # of the death that is replayed
    Column("state", Tiny, nullable=False, server_default=text("0")),
    _word("reason", 500),  # why a record is still no task
    Index("ix_replay_state", "run_id", "state", "kind", "item_id"),
)

guard = _table(
    "guard",
    _key(auto=True),
    _word("group_name", 100),
    _big("batch_id"),
    _word("type", 64),
    _word("route", 64),
    _word("cause", 32),
    _word("reason", 500),
    _now("raised_at"),
    # Without a look: when the next look, or the next prompt to the route, is due. During a look:
    # when the look began, or when tasks were last called up for it.
    _now("probe_at"),
    _big("probe_task"),  # nothing reads or writes it: the tasks of a look are in `guard_look`
    Column("opened_at", UtcTime),
    # When all tasks that the guard moved were called up, after it was opened.
    Column("called_at", UtcTime),
    Column("look_size", Integer, nullable=False, server_default=text("1")),
    # Free places; -1: no look.
    Column("look_left", Integer, nullable=False, server_default=text("-1")),
    # When the present look began; without one, when the last look ended or the guard was raised.
    _at("look_at", LONG_AGO),
    # Whether the route worked when the look began.
    Column("vouched", Tiny, nullable=False, server_default=text("0")),
    UniqueConstraint("batch_id", "type", "route", name="uq_guard_key"),
)

guard_look = _table(
    "guard_look",
    _key("guard_id"),
    _key("task_id"),
    # Of the task when it joined; it rises when an attempt fails.
    Column("fence", Integer, nullable=False),
    Index("ix_guard_look_task", "task_id"),
)

route_resume = _table(
    "route_resume",
    Column("group_name", name(100), primary_key=True),
    Column("route", name(64), primary_key=True),
    _now("resumed_at"),
)

task_loss = _table(
    "task_loss",
    _key("task_id"),
    _key("agent_id"),
    _now(),
    Index("ix_task_loss_agent", "agent_id"),
)

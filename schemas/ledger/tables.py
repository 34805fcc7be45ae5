"""The ledger's tables, as `migrations/` makes them.

Tables with frequent updates have fixed-width NOT NULL columns with sentinel values, because a row
moves when a NULL becomes a value. Text is stored in other tables. `doc` is used only for the
reference page of the tables.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Column, Index, Integer, MetaData, SmallInteger, Table, UniqueConstraint, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql.compiler import DDLCompiler
from sqlalchemy.types import TypeEngine

from docllm.schemas.ledger.sql import (
    LONG_AGO,
    NEVER,
    BigId,
    Blob,
    LongText,
    Tiny,
    UtcTime,
    binary,
    name,
    utc_now,
    varbinary,
)

Kind = TypeEngine[Any] | type[TypeEngine[Any]]  # of a column

metadata = MetaData()


# Options of a table itself would load SQLAlchemy's dialect for MySQL, with all its drivers.
@compiles(CreateTable, "mysql", "mariadb")
def _create_table(element: CreateTable, compiler: DDLCompiler, **kw: Any) -> str:
    created: str = compiler.visit_create_table(element, **kw)  # type: ignore[no-untyped-call]
    if element.element.metadata is not metadata:
        return created
    return f"{created.rstrip()}ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin\n\n"


def _table(title: str, doc: str, *parts: Column[Any] | Index | UniqueConstraint) -> Table[Any]:
    # If SQLite reused an id, a relay could delete the wrong publish order.
    counted = any(isinstance(part, Column) and part.autoincrement is True for part in parts)
    return Table(title, metadata, *parts, info={"doc": doc}, sqlite_autoincrement=counted)


def _key(title: str = "id", kind: Kind = BigId, *, doc: str, auto: bool = False) -> Column[Any]:
    return Column(title, kind, primary_key=True, autoincrement=auto, doc=doc)


def _given(title: str, kind: Kind, *, doc: str) -> Column[Any]:
    """Return a column that every row gives a value."""
    return Column(title, kind, nullable=False, doc=doc)


def _numbers(kind: Kind) -> Callable[..., Column[int]]:
    def column(title: str, default: int = 0, *, doc: str) -> Column[int]:
        return Column(title, kind, nullable=False, server_default=text(str(default)), doc=doc)

    return column


_tiny, _count = _numbers(Tiny), _numbers(SmallInteger)
_whole, _big = _numbers(Integer), _numbers(BigId)


def _word(title: str, length: int, *, doc: str) -> Column[str]:
    return Column(title, name(length), nullable=False, server_default=text("''"), doc=doc)


def _now(title: str = "created_at", *, doc: str) -> Column[Any]:
    return Column(title, UtcTime, nullable=False, server_default=utc_now(), doc=doc)


def _time(title: str, *, doc: str) -> Column[Any]:
    """Return a column for a time that is NULL until it comes."""
    return Column(title, UtcTime, doc=doc)


def _at(title: str, otherwise: str, *, doc: str) -> Column[Any]:
    """Return a column for a time that is not always known."""
    return Column(title, UtcTime, nullable=False, server_default=text(f"'{otherwise}'"), doc=doc)


ledger = _table(
    "ledger",
    "the ledger itself: one row",
    _key("ledger_id", binary(16), doc="random id, by which records name their ledger"),
    _word(
        "compatible_from",
        32,
        doc="oldest schema revision whose programs can work with the present schema",
    ),
    _word("schema_digest", 32, doc="digest of the present schema's tables"),
)

group_info = _table(
    "group_info",
    "one row for each group: the Kafka cluster and the topics on which it runs",
    _key("group_name", name(100), doc="the group"),
    _word("cluster_id", 100, doc="id of the Kafka cluster"),
    _given("topic_ids", LongText, doc="ids of the group's topics, as JSON"),
)

id_block = _table(
    "id_block",
    "counters from which loads take numbers; also locks for work of one agent at a time",
    _key("name", name(32), doc="what is counted"),
    _given("next", BigId, doc="next free number"),
)

agent = _table(
    "agent",
    "one row for each agent that has run",
    _key(doc="number of the agent"),
    _word("name", 191, doc="host and process, `HOST:PID`"),
    _word("group_name", 100, doc="the group"),
    _word("version", 32, doc="version of docllm"),
    _now("started_at", doc="when it started"),
    _now("seen_at", doc="its last heartbeat"),
    _now("steady_since", doc="since when its heartbeats have come without a gap"),
    _time("stopped_at", doc="when it ended in order; NULL while it runs or if it was lost"),
    _time("lost_at", doc="when another agent declared it lost"),
    Column("report", LongText, doc="what it said with its last heartbeat, as JSON"),
    _word("revision", 32, doc="schema revision that it works with"),
    _word("release_name", 64, doc="label of its release"),
    Index("ix_agent_group", "group_name", "seen_at"),
)

batch = _table(
    "batch",
    "one row for each batch",
    _key(auto=True, doc="number of the batch"),
    Column("name", name(191), nullable=False, unique=True, doc="name, unique over all groups"),
    _word("group_name", 100, doc="the group"),
    _now(doc="when its first load began"),
    _time("closed_at", doc="when its last load ended; NULL while a load runs or was interrupted"),
    _time("cancelled_at", doc="when it was cancelled"),
    _time(
        "archived_at",
        doc="when it was put away: its tasks are done, even those that have no rows any more",
    ),
    _word("note", 500, doc="who made it: empty for a load"),
    Column(
        "options",
        LongText,
        doc="what holds for tasks whose lines do not say otherwise, as JSON: `routes_allowed`, "
        "`output_uri`, `tenant`, `priority`; `openai` is what a client of the batch API said",
    ),
    _time("exported_until", doc="up to when stored results were written by `export --only-new`"),
    _time("purging_at", doc="when a purge began to delete rows of it"),
    _time("purged_at", doc="when all rows of its tasks were deleted"),
)

archive = _table(
    "archive",
    "one row for each archive of a batch, finished or not",
    _key(auto=True, doc="number of the archive"),
    _given("batch_id", BigId, doc="the batch"),
    _word("uri", 1000, doc="folder in which its files lie"),
    _word("format", 16, doc="`jsonl` or `parquet`"),
    _big("files", doc="files with tasks"),
    _big("bytes", doc="size of these files"),
    _big("tasks", doc="tasks in them"),
    _big("results", doc="of these, tasks with a result"),
    _big("dead", doc="of these, dead tasks"),
    Column("digest", binary(32), doc="SHA-256 of the manifest, once it is written"),
    _word("revision", 32, doc="schema revision of the ledger"),
    _word("version", 32, doc="version of docllm"),
    _now(doc="when it was begun; it holds what the tasks were then"),
    _time("verified_at", doc="when all files had been read back and compared"),
    _time("ended_at", doc="when it was given up unfinished"),
    Index("ix_archive_batch", "batch_id"),
    Index("ix_archive_verified", "verified_at"),
)

task = _table(
    "task",
    "one row for each task: its state",
    _key(doc="number of the task, in the order of loading"),
    _given("batch_id", BigId, doc="the batch"),
    _given("task_key", varbinary(191), doc="the line's `id`, as UTF-8 bytes"),
    _given("digest", binary(16), doc="of key and line, by which a line is recognized"),
    _word("type", 64, doc="the task's type"),
    _word("tenant", 64, doc="the task's tenant"),
    _tiny("status", doc="state of the task; see States"),
    _count("attempt", doc="attempts that have counted"),
    _count("max_attempts", 5, doc="most attempts that may count"),
    _count("lease_losses", doc="how many agents were lost over it since an attempt last counted"),
    _count("losses", doc="how many of its runs were cut off by the end of their agents, ever"),
    _count("replays", doc="how often it was replayed"),
    _whole("fence", doc="number of its newest publication; an older record is stale"),
    _big("owner", doc="the claim that holds it, 0 for none; the agent's id is `owner >> 24`"),
    _now(
        "due_at",
        doc="while it waits: its earliest next claim. While it is processing: the end "
        "of its claim's time. When it is final: the year 9999",
    ),
    _at("expires_at", NEVER, doc="the line's `deadline`; the year 9999 for none"),
    _now(doc="when it was loaded"),
    _word("carrier", 64, doc="topic that carries its newest record, without the group"),
    _word("route", 64, doc="route of the last attempt that did not succeed"),
    _big("parent_id", doc="the task that ordered this one, 0 for none"),
    _count("depth", doc="how many ancestors it has"),
    _at("claimed_at", LONG_AGO, doc="when its last claim was made"),
    _tiny("lane", doc="lane in which it waits: 0 normal, 1 urgent, 2 bulk"),
    _tiny("changed", doc="1 if a replay has changed what it runs with; see `task_change`"),
    _tiny(
        "join_role",
        doc="0 unless its parent ordered a join: 1 a task for whose end the join waits; of the "
        "join, by `on_dead_child`: 2 wait, 3 run, 4 die; 5 it dies at its next claim",
    ),
    UniqueConstraint("batch_id", "task_key", name="uq_task_key"),
    Index("ix_task_due", "status", "due_at"),
    Index("ix_task_open", "batch_id", "status", "due_at"),
    # Includes the primary key, so it gives a batch's first and last id.
    Index("ix_task_batch", "batch_id"),
)

task_input = _table(
    "task_input",
    "one row for each task: what was loaded",
    _key("task_id", doc="the task"),
    Column("raw_key", Blob, doc="key of the inbox record, if the task came from there"),
    Column("headers", Blob, doc="headers of that record"),
    _given("body", Blob, doc="the task line, byte for byte"),
)

task_change = _table(
    "task_change",
    "one row for each replay that changed what a task runs with",
    _key("task_id", doc="the task"),
    _key("fence", Integer, doc="publication from which on it holds"),
    _given(
        "run_id",
        BigId,
        doc="the replay; its `selection` says what runs in place of the line's fields",
    ),
    Column(
        "former_digest",
        binary(16),
        doc="digest of the line before, if the replay changed what the line says of its document",
    ),
)

task_result = _table(
    "task_result",
    "one row for each task that succeeded",
    _key("task_id", doc="the task"),
    _big("owner", doc="the claim that succeeded"),
    _now(doc="when the result was stored"),
    _word("model", 191, doc="the model that answered"),
    _big("tokens_in", doc="tokens of the prompt"),
    _big("tokens_out", doc="tokens of the answer"),
    _big("cost_micro", doc="cost in millionths of the currency"),
    _word("trace_id", 191, doc="the id of the last call, the provider's if it sent one"),
    _big("duration_ms", doc="how long the attempt took"),
    _tiny(
        "codec",
        doc="0: an answer of a provider; 1: the same, zlib; 2: a JSON value of a handler; "
        "3: the same, zlib; 4: an answer under its type's schema; 5: the same, zlib; "
        "6: a pointer to an object that has the answer, as JSON; 7: nothing, a purge deleted it; "
        "8: an answer after thoughts, which are not a part of it; 9: the same, zlib",
    ),
    _given("body", Blob, doc="the answer, or the pointer to it"),
    _word("route", 64, doc="the route"),
    _big("tokens_cached", doc="of `tokens_in`: read from the provider's cache"),
    _big("unsure_micro", doc="of `cost_micro`: estimated, because no usage is known"),
    _big("unpriced", doc="calls whose cost is unknown, and not in `cost_micro`"),
    _word("release_name", 64, doc="release of the agent"),
)

result_note = _table(
    "result_note",
    "one row for each note beside a result, for example what was left out of its document",
    _key("task_id", doc="the task"),
    _key("kind", name(32), doc="`omitted` or `truncated_input`"),
    _given("detail", LongText, doc="what it concerns, as JSON"),
)

task_attempt = _table(
    "task_attempt",
    "one row for each attempt that ended otherwise than in success",
    _key(auto=True, doc="number of the attempt"),
    _given("task_id", BigId, doc="the task"),
    _big("owner", doc="the claim"),
    _count("attempt", doc="how many attempts had counted before it"),
    _given("fence", Integer, doc="publication that was tried"),
    _word(
        "outcome",
        32,
        doc="how it ended: `retry`, `snooze`, `moved`, `dead`, `cancelled` or `released`; "
        "`lost` if its agent was lost or its claim was overdue; `hook` is no attempt but the cost "
        "of a hook",
    ),
    _word("error_class", 64, doc="class of the error"),
    _word("error_text", 2000, doc="text of the error"),
    _word("trace_id", 191, doc="the id of the last call, the provider's if it sent one"),
    _now("started_at", doc="when it began"),
    _big("duration_ms", doc="how long the attempt took"),
    _big("tokens_in", doc="tokens of the prompt"),
    _big("tokens_out", doc="tokens of the answer"),
    _big("cost_micro", doc="cost in millionths of the currency"),
    _word("route", 64, doc="the route"),
    _big("tokens_cached", doc="of `tokens_in`: read from the provider's cache"),
    _big("unsure_micro", doc="of `cost_micro`: estimated, because no usage is known"),
    _big("unpriced", doc="calls whose cost is unknown, and not in `cost_micro`"),
    _word("model", 191, doc="the model that was called"),
    _word("release_name", 64, doc="release of the agent"),
    _big(
        "lost_owner",
        doc="of a lost attempt, whose `owner` is 0: its claim; the agent's id is "
        "`lost_owner >> 24`",
    ),
    Index("ix_attempt_task", "task_id", "owner"),
)

reply = _table(
    "reply",
    "one row for each attempt whose answer cannot be used, or came after its task was dead",
    _key(auto=True, doc="number of the reply"),
    _given("task_id", BigId, doc="the task"),
    _big("owner", doc="the claim, as in `task_attempt`; of a lost attempt its `lost_owner`"),
    _given(
        "body",
        LongText,
        doc="the beginning of what the model said: its message's text, else the reply's body",
    ),
    Index("ix_reply_task", "task_id", "owner"),
)

dead_letter = _table(
    "dead_letter",
    "one row for each task that is dead now; a replay removes it",
    _key("task_id", doc="the task"),
    _given("fence", Integer, doc="publication that died"),
    _word("disposition", 32, doc="why the task was given up"),
    _word("error_class", 64, doc="class of the error"),
    _given(
        "fingerprint", binary(16), doc="the same for errors that differ only in numbers and names"
    ),
    _word("error_text", 2000, doc="text of the error"),
    _now("died_at", doc="when the task died"),
    _word("origin_topic", 249, doc="topic of the record whose attempt failed"),
    _whole("origin_partition", -1, doc="its partition"),
    _big("origin_offset", -1, doc="its offset"),
    _big("origin_timestamp_ms", doc="its timestamp"),
    # Copied from the task, so that no screen reads a row of `task` for each dead letter.
    _big("batch_id", doc="the batch"),
    _word("type", 64, doc="the task's type"),
    _word("tenant", 64, doc="the task's tenant"),
    _count("replays", doc="how often the task had been replayed"),
    _at("expires_at", NEVER, doc="the task's deadline"),
    _word("route", 64, doc="route of the last attempt"),
    _word("model", 191, doc="model of the last attempt"),
    _big("attempts", doc="attempts of the task, counted or not"),
    _big("tokens_in", doc="tokens of all prompts"),
    _big("tokens_out", doc="tokens of all answers"),
    _big("cost_micro", doc="cost of all attempts, in millionths"),
    _big("unpriced", doc="their calls whose cost is unknown"),
    Column(
        "traceback", Blob, doc="where the code of a handler failed in the last attempt, by zlib"
    ),
    Column("provider_error", Blob, doc="type, param and code of the provider's error, as JSON"),
    Index("ix_dead_fingerprint", "fingerprint"),
    Index("ix_dead_group", "batch_id", "fingerprint", "disposition"),
    Index("ix_dead_died", "died_at"),
    Index("ix_dead_replays", "replays"),
    Index("ix_dead_expires", "expires_at"),
)

dead_line = _table(
    "dead_line",
    "one row for each line whose task has died; a replay keeps it",
    _key("group_name", name(100), doc="the group"),
    _key(
        "digest", binary(16), doc="of key and line, by which a line is recognized that comes back"
    ),
    _given("task_id", BigId, doc="the newest task that died with this line"),
)

quarantine = _table(
    "quarantine",
    "one row for each record that is no task",
    _key(auto=True, doc="number of the record"),
    _word("group_name", 100, doc="the group"),
    _word("topic_id", 64, doc="id of the topic"),
    _word("topic", 249, doc="topic"),
    _given("part", Integer, doc="partition"),
    _given("record_offset", BigId, doc="offset"),
    Column("record_key", Blob, doc="key of the record"),
    Column("record_value", Blob, doc="value of the record, or its beginning"),
    Column("value_digest", binary(16), doc="BLAKE2b-128 of the whole value, if it was cut"),
    Column("headers", Blob, doc="headers of the record"),
    _word("disposition", 32, doc="`undecodable` or `rejected`"),
    _word("error_text", 2000, doc="why it is no task"),
    _now(doc="when it was first seen"),
    _whole("seen", 1, doc="how often it was read"),
    Column(
        "fingerprint", binary(16), doc="the same for errors that differ only in numbers and names"
    ),
    _time("replayed_at", doc="when it became a task after all"),
    UniqueConstraint("topic_id", "topic", "part", "record_offset", name="uq_quarantine_record"),
    Index("ix_quarantine_left", "group_name", "replayed_at"),
)

outbox = _table(
    "outbox",
    "one row for each order to publish records that has not been carried out",
    _key(auto=True, doc="number of the order"),
    _word("group_name", 100, doc="the group"),
    _word("destination", 64, doc="topic, without the group"),
    _now("due_at", doc="from when on it is carried out"),
    _given("items", Blob, doc="the tasks and their fences, packed"),
    Index("ix_outbox_due", "group_name", "due_at"),
)

tally = _table(
    "tally",
    "one row for each change of state that `status` has not summed up yet",
    _key(auto=True, doc="number of the row"),
    _now(doc="when the change happened"),
    _given("batch_id", BigId, doc="the batch"),
    _word("type", 64, doc="the task's type"),
    _word("route", 64, doc="the route of the change"),
    _given("state", Tiny, doc="state that tasks entered or left; see States"),
    _word(
        "outcome",
        64,
        doc="`loaded`, `replayed`, `succeeded`, `cancelled`, `probe`, `hook`, `call` (a further "
        "call of an attempt), `note` (a note beside a result), or the class of the error",
    ),
    _given("fingerprint", binary(16), doc="of the error, if there is one"),
    _given("delta", BigId, doc="tasks that entered the state, negative if they left it"),
    _big("tokens_in", doc="tokens of the prompt"),
    _big("tokens_out", doc="tokens of the answer"),
    _big("cost_micro", doc="cost in millionths of the currency"),
    _word("disposition", 32, doc="of a death; of a note: its kind"),
    _word("model", 191, doc="the model that answered"),
    _word("tenant", 64, doc="the task's tenant"),
    _big("tokens_cached", doc="of `tokens_in`: read from the provider's cache"),
    _big("unsure_micro", doc="of `cost_micro`: estimated, because no usage is known"),
    _big("unpriced", doc="calls whose cost is unknown, and not in `cost_micro`"),
    _big(
        "dead_attempts",
        doc="of tasks that died or were replayed: all of their attempts, with the sign of `delta`",
    ),
    _big("dead_tokens_in", doc="the same for tokens of prompts"),
    _big("dead_tokens_out", doc="the same for tokens of answers"),
    _big("dead_cost_micro", doc="the same for cost"),
    _big("dead_unpriced", doc="the same for calls whose cost is unknown"),
    Index("ix_tally_batch", "batch_id", "created_at"),
    Index("ix_tally_key", "batch_id", "type", "route", "created_at"),
    Index("ix_tally_created", "created_at"),
)

# The roll-ups of `tally`. Compaction alone writes them: it moves old rows of `tally` into all three
# in one transaction. A reader adds the rows that are still in `tally`, in one statement.

tally_sum = _table(
    "tally_sum",
    "sums of `tally` for each batch, by what the columns of the key say",
    _key("batch_id", doc="the batch"),
    _key("type", name(64), doc="the task's type"),
    _key("route", name(64), doc="the route"),
    _key("model", name(191), doc="the model that answered"),
    _key("tenant", name(64), doc="the task's tenant"),
    _key("state", Tiny, doc="state of the tasks; see States"),
    _key("outcome", name(64), doc="as in `tally`"),
    _key("disposition", name(32), doc="of deaths and notes"),
    _big("delta", doc="tasks in the state now"),
    _big("entered", doc="tasks that entered the state; it never falls"),
    _big("tokens_in", doc="tokens of the prompt"),
    _big("tokens_out", doc="tokens of the answer"),
    _big("tokens_cached", doc="of `tokens_in`: read from the provider's cache"),
    _big("cost_micro", doc="cost in millionths of the currency"),
    _big("unsure_micro", doc="of `cost_micro`: estimated, because no usage is known"),
    _big("unpriced", doc="calls whose cost is unknown, and not in `cost_micro`"),
    _at("newest_at", LONG_AGO, doc="when the newest of them entered"),
)

failure_group = _table(
    "failure_group",
    "sums of `tally` for each error that has made tasks dead",
    _key("batch_id", doc="the batch"),
    _key("type", name(64), doc="the task's type"),
    _key("tenant", name(64), doc="the task's tenant"),
    _key("route", name(64), doc="the route"),
    _key("disposition", name(32), doc="why the task was given up"),
    _key(
        "fingerprint", binary(16), doc="the same for errors that differ only in numbers and names"
    ),
    _word("error_class", 64, doc="class of the error"),
    _big("dead", doc="tasks that are dead now"),
    _big("entered", doc="tasks that died; it never falls"),
    _at("first_at", NEVER, doc="when the first of them died"),
    _at("last_at", LONG_AGO, doc="when the last of them died"),
    _big("sample_task", doc="one of the tasks that died; it may be replayed by now"),
    _big("attempts", doc="attempts of the tasks that are dead now"),
    _big("tokens_in", doc="tokens of their prompts"),
    _big("tokens_out", doc="tokens of their answers"),
    _big("cost_micro", doc="their cost, in millionths"),
    _big("unpriced", doc="their calls whose cost is unknown"),
    Index("ix_failure_fingerprint", "fingerprint"),
)

tally_series = _table(
    "tally_series",
    "sums of `tally` for each minute and each hour of a group",
    _key("group_name", name(100), doc="the group"),
    _key("width_s", SmallInteger, doc="60 or 3600"),
    _key("starts_at", UtcTime, doc="when the minute or hour begins"),
    _key("route", name(64), doc="the route"),
    _key("state", Tiny, doc="state that tasks entered; see States"),
    _key("outcome", name(64), doc="as in `tally`"),
    _big("entered", doc="tasks that entered the state"),
    _big("tokens_in", doc="tokens of the prompt"),
    _big("tokens_out", doc="tokens of the answer"),
    _big("cost_micro", doc="cost in millionths of the currency"),
    Index("ix_series_time", "width_s", "starts_at"),
)

release_count = _table(
    "release_count",
    "attempts of each release in each minute; an agent writes rows of its own, and compaction adds "
    "them up",
    # The minute comes first, so that a search for past minutes locks no row that a settle is
    # changing.
    _key(
        "starts_at", UtcTime, doc="when the minute begins; the year 2000 for the sum of all minutes"
    ),
    _key("group_name", name(100), doc="the group"),
    _key("agent_id", doc="the agent that counted, 0 for a sum of agents"),
    _key("release_name", name(64), doc="label of the release"),
    _key("route", name(64), doc="the route"),
    _big("succeeded", doc="attempts that succeeded"),
    _big("failed", doc="attempts that failed and counted"),
    _big("cost_micro", doc="cost of all attempts, in millionths of the currency"),
    _big("unpriced", doc="their calls whose cost is unknown"),
    _at("last_at", LONG_AGO, doc="the newest minute in this row"),
)

audit = _table(
    "audit",
    "one row for each order of a person, or of an agent in place of one",
    _key(auto=True, doc="number of the row"),
    _now(doc="when"),
    _word("actor", 191, doc="who: `USER@HOST`"),
    _word("action", 64, doc="what was done"),
    _word("detail", 2000, doc="the rest, for people"),
    _word("group_name", 100, doc="the group"),
    _word("kind", 32, doc="of the object: batch, task, guard, replay, route, topic"),
    _word("object", 191, doc="its name or number"),
    _big("items", doc="how many tasks or records it concerns"),
    _word("origin", 16, doc="`cli` or `agent`"),
    Index("ix_audit_group", "group_name", "created_at"),
)

replay_run = _table(
    "replay_run",
    "one row for each replay",
    _key(auto=True, doc="number of the replay"),
    _word("group_name", 100, doc="the group"),
    _now(doc="when it was ordered"),
    _word("actor", 191, doc="who ordered it"),
    _given("selection", LongText, doc="what was selected, as JSON"),
    _time(
        "stored_at", doc="when all of its items were stored; from then on it can only be resumed"
    ),
    _now("next_at", doc="when its rate lets the next items pass"),
    _time("ended_at", doc="when it ended"),
    # How many items there are, and how many of them are in each state that ends their wait.
    _big("total", doc="items"),
    _big("replayed", doc="items that run again"),
    _big("skipped", doc="items that need no replay any more"),
    _big("unread", doc="records that are still no task"),
    Index("ix_replay_open", "group_name", "ended_at"),
)

replay_item = _table(
    "replay_item",
    "one row for each task or record of a replay",
    _key("run_id", doc="the replay"),
    _key("kind", Tiny, doc="0: task; 1: record of the quarantine"),
    _key("item_id", doc="number of the task or record"),
    _given("fence", Integer, doc="the death that is replayed"),
    _tiny("state", doc="0: waits; 1: replayed; 2: skipped; 3: unread"),
    _word("reason", 500, doc="why a record is still no task"),
    _word("document", 500, doc="what is new of the task's document, as JSON; empty for nothing"),
    Index("ix_replay_state", "run_id", "state", "kind", "item_id"),
)

guard = _table(
    "guard",
    "one row for each guard, raised or opened",
    _key(auto=True, doc="number of the guard"),
    _word("group_name", 100, doc="the group"),
    _big("batch_id", doc="the batch that is held back"),
    _word("type", 64, doc="its type"),
    _word("route", 64, doc="its route"),
    _word("cause", 32, doc="why the guard was raised; see Failures"),
    _word("reason", 500, doc="the same, for people"),
    _now("raised_at", doc="when it was raised"),
    _now(
        "probe_at",
        doc="without a look: when the next look, or the next prompt to the route, is due. "
        "During a look: when it began, or when tasks were last called up for it",
    ),
    _time("opened_at", doc="when it was opened"),
    _time("called_at", doc="when all tasks that it had moved were called up"),
    _whole("look_size", 1, doc="tasks that the next look tries"),
    _whole("look_left", -1, doc="free places of the present look; -1: no look"),
    _at(
        "look_at",
        LONG_AGO,
        doc="when the present look began; without one, when the last one ended or the "
        "guard was raised",
    ),
    _tiny("vouched", doc="1 if the route worked when the look began"),
    UniqueConstraint("batch_id", "type", "route", name="uq_guard_key"),
)

guard_look = _table(
    "guard_look",
    "one row for each task of the present look of a guard",
    _key("guard_id", doc="the guard"),
    _key("task_id", doc="the task"),
    _given("fence", Integer, doc="of the task when it joined"),
    Index("ix_guard_look_task", "task_id"),
)

route_resume = _table(
    "route_resume",
    "one row for each route that a person resumed",
    _key("group_name", name(100), doc="the group"),
    _key("route", name(64), doc="the route"),
    _now("resumed_at", doc="when"),
)

waiting = _table(
    "waiting",
    "one row for each task that waits in the ledger; it has no record until it is called up",
    _key("task_id", doc="the task"),
    _given("fence", Integer, doc="of the task while it waits; a row behind it is void"),
    _word("group_name", 100, doc="the group"),
    _word("reason", 16, doc="why it waits; see Waits"),
    _word("reason_key", 191, doc="what it waits for, if its reason has several"),
    _now("due_at", doc="when it is called up at the latest"),
    Index("ix_waiting_reason", "group_name", "reason", "reason_key", "due_at"),
    Index("ix_waiting_due", "group_name", "due_at"),
)

task_state = _table(
    "task_state",
    "one row for each task whose handler has asked to come back later",
    _key("task_id", doc="the task"),
    _whole("come_backs", doc="how often it has, since it was loaded or replayed"),
    _given("state", Blob, doc="what the handler keeps until then, as JSON"),
)

task_loss = _table(
    "task_loss",
    "one row for each agent that was lost over a task",
    _key("task_id", doc="the task"),
    _key("agent_id", doc="the agent that was lost"),
    _now(doc="when"),
    Index("ix_task_loss_agent", "agent_id"),
)

follow_up = _table(
    "follow_up",
    "one row for each task that a handler ordered",
    _key("parent_id", doc="the task that ordered it; of those without a join, the first one"),
    _key("task_id", doc="the ordered task"),
)

resource_lock = _table(
    "resource_lock",
    "one row for each lock that handlers have taken in the last day",
    _key("group_name", name(100), doc="the group"),
    _key("name", name(191), doc="name of the lock"),
    _big("fence", doc="number of its last holder; each holder has a higher one"),
    _big("task_id", doc="the task that holds it, 0 for none"),
    _big("owner", doc="the claim under which the task holds it; another claim holds nothing"),
    _big("tickets", doc="how many attempts have waited for it"),
    _now("changed_at", doc="when it was taken, or given back"),
    Index("ix_resource_lock_changed", "changed_at"),
    Index("ix_resource_lock_held", "group_name", "owner"),
)

lock_wait = _table(
    "lock_wait",
    "one row for each task that waits for a lock",
    _key("group_name", name(100), doc="the group"),
    _key("name", name(191), doc="name of the lock"),
    _key("task_id", doc="the task"),
    _big("ticket", doc="its place in the order of asking; it keeps it for its next attempt"),
    _big("owner", doc="the claim that waits, 0 for none"),
    _now("asked_at", doc="when it asked"),
    Index("ix_lock_wait_order", "group_name", "name", "ticket"),
    Index("ix_lock_wait_asked", "asked_at"),
)

hook = _table(
    "hook",
    "one row for each hook that has not run yet, or was given up",
    _key(auto=True, doc="number of the order"),
    _word("group_name", 100, doc="the group"),
    _word("type", 64, doc="the task's type; empty for a batch and for `output`"),
    _word(
        "event",
        16,
        doc="after what it runs: `success`, `retry`, `dead` or `batch_done`; `output`: the result "
        "is copied to the object that the line names",
    ),
    _tiny("state", doc="0: waits; 1: runs; 2: given up"),
    _now("due_at", doc="while it waits: when it runs. While it runs: when its lease ends"),
    _big("owner", doc="the agent that runs it, 0 for none"),
    _count("tries", doc="how often it has failed"),
    _count("losses", doc="how many agents were lost while they ran it"),
    _now(doc="when the attempt, or the batch, ended"),
    _given("task_id", BigId, doc="the task, 0 for a batch"),
    _given("batch_id", BigId, doc="the batch"),
    _word("route", 64, doc="the route of the attempt"),
    _word("status", 16, doc="`succeeded`, `retrying`, `dead` or `cancelled`"),
    _count(
        "attempts",
        doc="attempts of the task that had counted, with this one; of a batch: the round",
    ),
    _word("disposition", 32, doc="of a death: why the task was given up"),
    _word("error_class", 64, doc="class of the attempt's error"),
    _word("error_text", 2000, doc="text of the attempt's error"),
    _word("failure", 2000, doc="why the hook failed the last time"),
    Index("ix_hook_due", "group_name", "state", "type", "event", "due_at"),
    Index("ix_hook_task", "task_id"),
)

hook_type = _table(
    "hook_type",
    'one row for each hook, and for each `on_loss = "dead"`, in the settings of an agent',
    _key("group_name", name(100), doc="the group"),
    _key("type", name(64), doc="the type"),
    _key("event", name(16), doc="as in `hook`; `loss` for `on_loss`"),
    _now(
        "seen_at",
        doc="when an agent last said so; it holds for a day, and `loss` for claims "
        "that were made until then",
    ),
    _now("since", doc="when an agent first said so, of `batch_done` at its start"),
)

batch_end = _table(
    "batch_end",
    "one row for each end of a batch that has a hook; a replay lets the batch end again",
    _key("batch_id", doc="the batch"),
    _key("round", Integer, doc="1 for its first end, then one more for each"),
    _big("ends", doc="how often tasks of it had become final by then"),
    _now("ended_at", doc="when the end was found"),
    _given("counts", LongText, doc="its tasks by state, and its cost, as JSON"),
)

"""Dead letters are shown in groups of one error, and each with everything about it."""

from datetime import datetime, timedelta

import pytest

from docllm.agent.ledger.counts import compaction
from docllm.agent.ledger.counts.compaction import CompactionLimits
from docllm.agent.ports.outcome import Dead, Failure, Outcome
from docllm.producer.ledger import quarantine, tally, task_story
from docllm.producer.ledger.dead_letters import selection_query
from docllm.producer.ledger.dead_letters.error_groups import ErrorGroup, any_dead, listed
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.status import group_status
from docllm.schemas.ledger import tables
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.task.states import Status
from docllm.schemas.text.fingerprint import fingerprint
from tests.contract.support.ledger_dead import EXPIRED, OTHER, dead, killed, replayed, set_aside
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    RELEASED,
    RETRY,
    SPENT,
    SUCCEEDED,
    LedgerDatabase,
    new_task,
)

HOSTILE = [
    "'",
    '"; --',
    "%",
    "_",
    "a%b",
    "\\",
    "ü",
    "U\u0308",
    "\U0001f600",
    "quarantine:1",
    "Ab",
    "aB",
]


def groups(ledger_db: LedgerDatabase, **options: object) -> list[ErrorGroup]:
    return ledger_db.call(listed, GROUP, Selection(**options))  # type: ignore[arg-type]


def names(ledger_db: LedgerDatabase, **options: object) -> set[str]:
    """Return the examples of the selected groups."""
    return {group.example.id for group in groups(ledger_db, **options)}


def test_one_error_is_one_group(ledger_db: LedgerDatabase) -> None:
    """Deaths that differ only in numbers are counted together.

    The largest group comes first, and the oldest task is its example.
    """
    failures = [
        Dead(Failure(ErrorClass.TOO_LONG, f"{number} tokens are too many"), SPENT)
        for number in (9000, 8000, 7000)
    ]
    for key, outcome in zip("abc", failures, strict=True):
        dead(ledger_db, key, outcome=outcome)
    dead(ledger_db, "d", into="other")

    long, bad = groups(ledger_db)

    assert (long.count, long.tasks, long.disposition) == (3, 3, "permanent")
    assert long.fingerprint == fingerprint("TOO_LONG", "1 tokens are too many").hex()
    assert (long.example.id, long.example.batch, long.example.error) == (
        "a",
        BATCH,
        "9000 tokens are too many",
    )
    assert (bad.count, bad.example.batch, bad.example.error_class) == (1, "other", "BAD_REQUEST")


def test_the_traceback_of_a_handlers_failure_is_kept(ledger_db: LedgerDatabase) -> None:
    """Each dead task has its own; a death without a traceback has none."""
    text = '  File "invoices.py", line 3, in extract\n    total["ü"]\n' * 40
    (failed,) = dead(
        ledger_db, "a", outcome=Dead(Failure(ErrorClass.HANDLER, "KeyError", text), SPENT)
    )
    (refused,) = dead(ledger_db, "b")

    shown = [ledger_db.call(task_story.story, GROUP, BATCH, key) for key in ("a", "b")]

    assert [story.letter.traceback for story in shown if story and story.letter] == [text, ""]
    sizes = {row.task_id: len(row.traceback or b"") for row in ledger_db.rows(tables.dead_letter)}
    assert 0 < sizes[failed] < len(text) // 4
    assert sizes[refused] == 0


def test_a_disposition_parts_a_group(ledger_db: LedgerDatabase) -> None:
    """For a person the same error with two dispositions is two things."""
    dead(ledger_db, "a", outcome=EXPIRED)
    dead(ledger_db, "b", outcome=Dead(EXPIRED.failure, SPENT, Disposition.PERMANENT))

    assert sorted(group.disposition for group in groups(ledger_db)) == ["expired", "permanent"]


def test_a_group_has_its_times_and_its_cost(ledger_db: LedgerDatabase) -> None:
    """A group has its first and last time, and the cost of all attempts of its tasks."""
    first, second = ledger_db.load("a", "b")
    killed(ledger_db, first, RETRY)
    ledger_db.ago(tables.task.c.due_at, 1, first)
    killed(ledger_db, first)
    killed(ledger_db, second)
    (death,) = [row.id for row in ledger_db.rows(tables.tally) if row.state == Status.DEAD][:1]
    ledger_db.ago(tables.tally.c.created_at, 3600, death)

    (group,) = groups(ledger_db)

    assert group.last_at - group.first_at > timedelta(minutes=59)
    assert (
        group.spent.attempts,
        group.spent.tokens_in,
        group.spent.tokens_out,
        group.spent.cost_micro,
    ) == (3, 30, 15, 900)


def test_quarantined_records_are_groups_too(ledger_db: LedgerDatabase) -> None:
    """Quarantined records have disposition and class, and are grouped by their reason.

    They are shown until they are replayed.
    """
    first, *_ = set_aside(ledger_db, b"1", b"2", reason="line is not JSON at column 7")
    set_aside(ledger_db, b"3", reason="line is not JSON at column 99")
    gone, *_ = set_aside(
        ledger_db, b"4", reason="its id is in batch 'b' with other content", disposition="rejected"
    )
    ledger_db.set(tables.quarantine, gone, replayed_at=ledger_db.run(selection_query.now))
    dead(ledger_db, "a")

    record, task = groups(ledger_db)

    assert (record.count, record.tasks, record.disposition) == (3, 0, "undecodable")
    assert (record.example.id, record.example.error_class) == (f"quarantine:{first}", "UNDECODABLE")
    assert record.fingerprint == fingerprint("UNDECODABLE", "line is not JSON at column 1").hex()
    assert task.tasks == 1


def test_records_of_before_have_no_fingerprint(ledger_db: LedgerDatabase) -> None:
    """A record that an older version quarantined is shown all the same."""
    (quarantine_id,) = set_aside(ledger_db, b"1")
    ledger_db.set(tables.quarantine, quarantine_id, fingerprint=None)

    (group,) = groups(ledger_db)

    assert (group.fingerprint, group.count) == ("", 1)


def test_tasks_that_are_not_dead_are_not_shown(ledger_db: LedgerDatabase) -> None:
    """Tasks in other states and tasks of other groups are not shown."""
    (done,) = ledger_db.load("done")
    killed(ledger_db, done, SUCCEEDED)
    ledger_db.load("waiting")
    (theirs,) = ledger_db.load("theirs", into="elsewhere", group="other")
    killed(ledger_db, theirs)

    assert groups(ledger_db) == []


def test_every_selection_narrows(ledger_db: LedgerDatabase) -> None:
    """Each filter selects fewer dead letters, and so do all filters together.

    The filters are disposition, fingerprint, batch, type, tenant, time and id.
    """
    outcomes: dict[str, Outcome] = {"a": DEAD, "b": OTHER, "c": EXPIRED}
    ids = {key: ledger_db.load(key, into=f"batch {key}")[0] for key in outcomes}
    ledger_db.set(tables.task, ids["b"], type="special", tenant="acme")
    for key, outcome in outcomes.items():
        killed(ledger_db, ids[key], outcome)
    ledger_db.ago(tables.dead_letter.c.died_at, 7200, ids["c"])
    hour_ago = ledger_db.run(selection_query.now) - timedelta(hours=1)
    stamp = fingerprint("TOO_LONG", "9 tokens are too many").hex()

    assert names(ledger_db) == {"a", "b", "c"}
    assert names(ledger_db, dispositions=("expired",)) == {"c"}
    assert names(ledger_db, dispositions=("expired", "permanent")) == {"a", "b", "c"}
    assert names(ledger_db, fingerprint=stamp) == names(ledger_db, fingerprint=stamp[:7]) == {"b"}
    assert names(ledger_db, batch="batch a") == {"a"}
    assert names(ledger_db, batch="Batch a") == set()
    assert names(ledger_db, type="special") == names(ledger_db, tenant="acme") == {"b"}
    assert names(ledger_db, since=hour_ago) == {"a", "b"}
    assert names(ledger_db, until=hour_ago) == {"c"}
    assert names(ledger_db, key="a") == {"a"}
    assert names(
        ledger_db,
        dispositions=("permanent",),
        since=hour_ago,
        tenant="acme",
        batch="batch b",
        key="b",
    ) == {"b"}
    assert names(ledger_db, dispositions=("permanent",), tenant="acme", batch="batch a") == set()
    assert len(groups(ledger_db, limit=2)) == 2


@pytest.mark.parametrize("key", HOSTILE)
def test_an_id_means_itself_alone(ledger_db: LedgerDatabase, key: str) -> None:
    """An id selects the one task with that id.

    It may contain quotes, wildcards, SQL characters and letters that look alike.
    """
    dead(ledger_db, *HOSTILE)

    (group,) = groups(ledger_db, key=key)

    assert (group.count, group.example.id) == (1, key)


def test_many_groups_have_their_own_examples(ledger_db: LedgerDatabase) -> None:
    """More groups than one statement reads are all returned, each with its own text."""
    ids = ledger_db.load(*(f"k{number:04}" for number in range(600)))
    ledger_db.run(lambda c: c.execute(tables.task.update().values(status=int(Status.DEAD))))
    letters = [
        {
            "task_id": task_id,
            "batch_id": ledger_db.batch().id,
            "fence": 0,
            "disposition": "permanent",
            "error_class": "X",
            "fingerprint": place.to_bytes(16, "big"),
            "error_text": str(place),
        }
        for place, task_id in enumerate(ids)
    ]
    ledger_db.run(lambda c: c.execute(tables.dead_letter.insert(), letters))
    deaths = [tally.died(row._asdict()) for row in ledger_db.rows(tables.dead_letter)]
    ledger_db.call(tally.write, deaths)

    dead_groups = groups(ledger_db)

    assert {
        (group.fingerprint, group.example.id, group.example.error) for group in dead_groups
    } == {(f"{place:032x}", f"k{place:04}", str(place)) for place in range(600)}


# ---- groups of the roll-ups


def roll_up(ledger_db: LedgerDatabase, groups: int = 2000) -> None:
    """Move all counts into the roll-ups."""
    limits = CompactionLimits(after_s=-60.0, groups=groups)
    while ledger_db.call(compaction.compact, limits):
        pass


def failure(number: int) -> Dead:
    """Return the end of a task by one of many errors."""
    name = "".join(chr(ord("a") + int(digit)) for digit in str(number))
    return Dead(Failure(ErrorClass.TOO_LONG, f"failure {name}"), SPENT)


def test_a_roll_up_changes_no_group(ledger_db: LedgerDatabase) -> None:
    """Groups are the same from the tally, from the roll-ups and from both."""
    dead(ledger_db, "a", "b")
    dead(ledger_db, "c", into="other", outcome=OTHER)
    fresh = groups(ledger_db)
    roll_up(ledger_db)
    assert groups(ledger_db) == fresh

    replayed(ledger_db, key="a")
    (first, second) = groups(ledger_db)

    assert (first.count, second.count) == (1, 1)
    assert {first.example.id, second.example.id} == {"b", "c"}
    roll_up(ledger_db)
    assert groups(ledger_db) == [first, second]
    replayed(ledger_db)
    assert groups(ledger_db) == []


def test_errors_beyond_the_limit_are_one_group(ledger_db: LedgerDatabase) -> None:
    """Such a group has no example. Its replays are taken from it, before and after a roll-up."""
    for number in range(5):
        dead(ledger_db, str(number), outcome=failure(number))
        roll_up(ledger_db, groups=2)

    several, *single = groups(ledger_db)
    assert (several.fingerprint, several.count, several.example.id) == ("ff" * 16, 3, "")
    assert [group.count for group in single] == [1, 1]

    replayed(ledger_db, key="4")
    for _ in range(2):
        assert [group.count for group in groups(ledger_db)] == [2, 1, 1]
        roll_up(ledger_db, groups=2)


def test_an_error_among_others_is_found_by_its_fingerprint(ledger_db: LedgerDatabase) -> None:
    """The roll-ups do not know it by itself, so its dead letters are counted."""
    for number in range(4):
        dead(ledger_db, str(number), outcome=failure(number))
        roll_up(ledger_db, groups=2)
    stamp = fingerprint("TOO_LONG", "failure d").hex()

    (group,) = groups(ledger_db, fingerprint=stamp)

    assert (group.count, group.example.id) == (1, "3")


def test_only_some_groups_need_an_example(ledger_db: LedgerDatabase) -> None:
    """A screen shows the first groups only, so the others are not searched for an example."""
    for number in range(3):
        dead(ledger_db, str(number), outcome=failure(number))

    shown = ledger_db.call(listed, GROUP, Selection(), examples=1)

    assert [bool(group.example.id) for group in shown] == [True, False, False]


def test_whether_any_task_is_dead(ledger_db: LedgerDatabase) -> None:
    """Tasks of other groups do not count."""
    (theirs,) = ledger_db.load("theirs", into="elsewhere", group="other")
    killed(ledger_db, theirs)

    assert not ledger_db.call(any_dead, GROUP)
    dead(ledger_db, "a")
    assert ledger_db.call(any_dead, GROUP)


# ---- one task, one record


def test_the_names_of_a_newer_version_are_shown_as_they_are(ledger_db: LedgerDatabase) -> None:
    """During an upgrade, agents of the newer version store names that this one does not know."""
    (task_id,) = dead(ledger_db, "a")
    newer = {"error_class": "NEWER", "disposition": "newer"}
    ledger_db.run(lambda c: c.execute(tables.dead_letter.update().values(**newer)))
    attempts = tables.task_attempt.update().values(error_class="NEWER", outcome="newer")
    ledger_db.run(lambda c: c.execute(attempts))
    counts = tables.tally.update().values(outcome="NEWER", disposition="newer")
    ledger_db.run(lambda c: c.execute(counts))

    (group,) = groups(ledger_db)
    story = ledger_db.call(task_story.story, GROUP, BATCH, "a")
    (batch,) = ledger_db.call(group_status.read_group, GROUP).batches

    assert (group.disposition, group.example.error_class) == ("newer", "NEWER")
    assert story is not None
    assert [(each.outcome, each.error_class) for each in story.history] == [("newer", "NEWER")]
    assert batch.failures["dead NEWER"] == 1
    assert ledger_db.task(task_id).status == Status.DEAD


def test_a_story_has_everything(ledger_db: LedgerDatabase) -> None:
    """State, counters, dead letter with origin, attempts with cost, and the input's bytes."""
    body = bytes(range(256))
    (task_id,) = ledger_db.accept([new_task("kéy", body, b"\xff")], ledger_db.batch()).new.values()
    killed(ledger_db, task_id, RETRY)
    ledger_db.ago(tables.task.c.due_at, 1, task_id)
    killed(ledger_db, task_id, OTHER)
    ledger_db.set(tables.task, task_id, lease_losses=1, replays=2)

    story = ledger_db.call(task_story.story, GROUP, BATCH, "kéy")

    assert story is not None
    assert (story.number, story.status, story.input, story.raw_key) == (
        task_id,
        Status.DEAD,
        body,
        b"\xff",
    )
    assert (story.attempts, story.max_attempts, story.lease_losses, story.replays, story.fence) == (
        2,
        5,
        1,
        2,
        1,
    )
    assert [
        (each.attempt, each.fence, each.outcome, each.error_class) for each in story.history
    ] == [
        (1, 0, "retry", "SERVER"),
        (2, 1, "dead", "TOO_LONG"),
    ]
    assert {
        (each.call_id, each.duration_ms, each.tokens_in, each.tokens_out, each.cost_micro)
        for each in story.history
    } == {("trace", 1500, 10, 5, 300)}
    assert {(each.route, each.model) for each in story.history} == {("route", "model")}
    assert story.letter is not None
    assert (story.letter.route, story.letter.model) == ("route", "model")
    assert (story.letter.fence, story.letter.disposition, story.letter.error) == (
        1,
        "permanent",
        "9000 tokens are too many",
    )
    assert (
        story.letter.origin_topic,
        story.letter.origin_partition,
        story.letter.origin_offset,
    ) == ("group.tasks", 3, 17)
    assert (story.result, story.expires_at) == (None, None)


def test_a_story_of_a_running_task_says_since_when_it_runs(ledger_db: LedgerDatabase) -> None:
    """The time is that of the claim; a task that waits again has none."""

    def claimed_at() -> datetime | None:
        story = ledger_db.call(task_story.story, GROUP, BATCH, "a")
        assert story is not None
        return story.claimed_at

    (task_id,) = ledger_db.load("a")
    assert claimed_at() is None

    row = ledger_db.claimed(task_id, ledger_db.agent().next_owner())
    stored = ledger_db.rows(tables.task)[0].claimed_at
    assert (claimed_at(), stored.year > 2000) == (stored, True)

    ledger_db.settle(row, row.owner, RELEASED)
    assert claimed_at() is None


def test_a_story_of_a_task_that_is_not_dead(ledger_db: LedgerDatabase) -> None:
    """A task that is not dead is shown without a dead letter, with its result."""
    (task_id,) = ledger_db.load("a")
    killed(ledger_db, task_id, SUCCEEDED)

    story = ledger_db.call(task_story.story, GROUP, BATCH, "a")

    assert story is not None
    assert (story.letter, story.status, story.attempts, story.history) == (
        None,
        Status.SUCCEEDED,
        1,
        (),
    )
    assert story.result is not None
    assert (story.result.model, story.result.tokens_in, story.result.cost_micro) == (
        "model",
        10,
        300,
    )
    assert (story.result.route, story.result.unsure_micro) == ("route", 0)


def test_a_name_may_be_in_several_batches(ledger_db: LedgerDatabase) -> None:
    """The batch tells them apart; another group's tasks are not shown."""
    dead(ledger_db, "a", into="one")
    ledger_db.load("a", into="two")
    ledger_db.load("a", into="theirs", group="other")

    def states(key: str, batch: str | None = None) -> list[tuple[str, Status]]:
        return ledger_db.call(task_story.states, GROUP, key, batch)

    assert states("a") == [("one", Status.DEAD), ("two", Status.PENDING)]
    assert states("a", "two") == [("two", Status.PENDING)]
    assert states("A") == states("a", "theirs") == []
    assert ledger_db.call(task_story.story, GROUP, "theirs", "a") is None


def test_a_record_has_everything(ledger_db: LedgerDatabase) -> None:
    """Position, bytes, headers and reason are shown, and whether the value is whole."""
    small, large, empty = set_aside(
        ledger_db, b"\xff", b"x" * (quarantine.KEPT_BYTES + 1), None, headers=[("h", b"v")]
    )

    whole, cut, none = (
        ledger_db.call(task_story.record, GROUP, record_id) for record_id in (small, large, empty)
    )

    assert whole is not None
    assert (whole.topic, whole.partition, whole.offset, whole.key, whole.value) == (
        "group.inbox",
        0,
        0,
        b"key",
        b"\xff",
    )
    assert (whole.disposition, whole.error_class, whole.error, whole.cut) == (
        "undecodable",
        "UNDECODABLE",
        "line is not JSON",
        False,
    )
    assert (whole.headers, whole.replayed_at, whole.seen) == (b'[["h","v"]]', None, 1)
    assert cut is not None
    assert cut.cut
    assert none is not None
    assert none.value is None
    assert ledger_db.call(task_story.record, "other", small) is None
    assert ledger_db.call(task_story.record, GROUP, 10**9) is None

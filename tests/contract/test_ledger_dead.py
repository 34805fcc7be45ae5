"""Dead letters are shown in groups of one error, and each with everything about it."""

from datetime import timedelta

import pytest

from agent.outcome import Dead, Failure, Outcome
from producer.ledger import history, quarantine, selection_query
from producer.ledger.dead_letters import Group, listed
from producer.ledger.selection import Selection
from schemas.ledger import tables
from schemas.task.fingerprint import fingerprint
from schemas.task.states import Status
from tests.contract.ledger_dead import EXPIRED, OTHER, dead, killed, set_aside
from tests.contract.ledger_parts import BATCH, DEAD, GROUP, RETRY, SPENT, SUCCEEDED, Books, new_task

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


def groups(books: Books, **said: object) -> list[Group]:
    return books.run(lambda c: listed(c, GROUP, Selection(**said)))  # type: ignore[arg-type]


def names(books: Books, **said: object) -> set[str]:
    """Return the examples of the selected groups."""
    return {one.example.id for one in groups(books, **said)}


def test_one_error_is_one_group(books: Books) -> None:
    """Deaths that differ only in numbers are counted together.

    The largest group comes first, and the oldest task is its example.
    """
    failures = [
        Dead(Failure("TOO_LONG", f"{number} tokens are too many"), SPENT)
        for number in (9000, 8000, 7000)
    ]
    for key, outcome in zip("abc", failures, strict=True):
        dead(books, key, outcome=outcome)
    dead(books, "d", into="other")

    long, bad = groups(books)

    assert (long.count, long.tasks, long.disposition) == (3, 3, "permanent")
    assert long.fingerprint == fingerprint("TOO_LONG", "1 tokens are too many").hex()
    assert (long.example.id, long.example.batch, long.example.error) == (
        "a",
        BATCH,
        "9000 tokens are too many",
    )
    assert (bad.count, bad.example.batch, bad.example.error_class) == (1, "other", "BAD_REQUEST")


def test_a_disposition_parts_a_group(books: Books) -> None:
    """For a person the same error with two dispositions is two things."""
    dead(books, "a", outcome=EXPIRED)
    dead(books, "b", outcome=Dead(EXPIRED.failure, SPENT, "permanent"))

    assert sorted(one.disposition for one in groups(books)) == ["expired", "permanent"]


def test_a_group_tells_when_and_how_dear(books: Books) -> None:
    """A group has its first and last time, and the cost of all attempts of its tasks."""
    one, two = books.load("a", "b")
    killed(books, one, RETRY)
    books.ago(tables.task.c.due_at, 1, one)
    killed(books, one)
    killed(books, two)
    books.ago(tables.dead_letter.c.died_at, 3600, one)

    (found,) = groups(books)

    assert found.last_at - found.first_at > timedelta(minutes=59)
    assert (
        found.spent.attempts,
        found.spent.tokens_in,
        found.spent.tokens_out,
        found.spent.cost_micro,
    ) == (3, 30, 15, 900)


def test_quarantined_records_are_groups_too(books: Books) -> None:
    """Quarantined records have disposition and class, and are grouped by their reason.

    They are shown until they are replayed.
    """
    first, *_ = set_aside(books, b"1", b"2", reason="line is not JSON at column 7")
    set_aside(books, b"3", reason="line is not JSON at column 99")
    gone, *_ = set_aside(
        books, b"4", reason="its id is in batch 'b' with other content", disposition="rejected"
    )
    books.set(tables.quarantine, gone, replayed_at=books.run(selection_query.now))
    dead(books, "a")

    record, task = groups(books)

    assert (record.count, record.tasks, record.disposition) == (3, 0, "undecodable")
    assert (record.example.id, record.example.error_class) == (f"quarantine:{first}", "UNDECODABLE")
    assert record.fingerprint == fingerprint("UNDECODABLE", "line is not JSON at column 1").hex()
    assert task.tasks == 1


def test_records_of_before_have_no_fingerprint(books: Books) -> None:
    """A record that an older version quarantined is shown all the same."""
    (one,) = set_aside(books, b"1")
    books.set(tables.quarantine, one, fingerprint=None)

    (found,) = groups(books)

    assert (found.fingerprint, found.count) == ("", 1)


def test_what_is_not_dead_is_not_shown(books: Books) -> None:
    """Tasks in other states and tasks of other groups are not shown."""
    (done,) = books.load("done")
    killed(books, done, SUCCEEDED)
    books.load("waiting")
    (theirs,) = books.load("theirs", into="elsewhere", group="other")
    killed(books, theirs)

    assert groups(books) == []


def test_every_selection_narrows(books: Books) -> None:
    """Each filter selects fewer dead letters, and so do all filters together.

    The filters are disposition, fingerprint, batch, type, tenant, time and id.
    """
    outcomes: dict[str, Outcome] = {"a": DEAD, "b": OTHER, "c": EXPIRED}
    ids = {
        key: dead(books, key, into=f"batch {key}", outcome=outcome)[0]
        for key, outcome in outcomes.items()
    }
    books.set(tables.task, ids["b"], type="special", tenant="acme")
    books.ago(tables.dead_letter.c.died_at, 7200, ids["c"])
    hour_ago = books.run(selection_query.now) - timedelta(hours=1)
    stamp = fingerprint("TOO_LONG", "9 tokens are too many").hex()

    assert names(books) == {"a", "b", "c"}
    assert names(books, dispositions=("expired",)) == {"c"}
    assert names(books, dispositions=("expired", "permanent")) == {"a", "b", "c"}
    assert names(books, fingerprint=stamp) == names(books, fingerprint=stamp[:7]) == {"b"}
    assert names(books, batch="batch a") == {"a"}
    assert names(books, batch="Batch a") == set()
    assert names(books, type="special") == names(books, tenant="acme") == {"b"}
    assert names(books, since=hour_ago) == {"a", "b"}
    assert names(books, until=hour_ago) == {"c"}
    assert names(books, key="a") == {"a"}
    assert names(
        books, dispositions=("permanent",), since=hour_ago, tenant="acme", batch="batch b", key="b"
    ) == {"b"}
    assert names(books, dispositions=("permanent",), tenant="acme", batch="batch a") == set()
    assert len(groups(books, limit=2)) == 2


@pytest.mark.parametrize("key", HOSTILE)
def test_an_id_means_itself_alone(books: Books, key: str) -> None:
    """An id selects the one task with that id.

    It may contain quotes, wildcards, SQL characters and letters that look alike.
    """
    dead(books, *HOSTILE)

    (found,) = groups(books, key=key)

    assert (found.count, found.example.id) == (1, key)


def test_many_groups_have_their_own_examples(books: Books) -> None:
    """More groups than one statement reads are all returned, each with its own text."""
    ids = books.load(*(f"k{number:04}" for number in range(600)))
    books.run(lambda c: c.execute(tables.task.update().values(status=int(Status.DEAD))))
    letters = [
        {
            "task_id": one,
            "fence": 0,
            "disposition": "permanent",
            "error_class": "X",
            "fingerprint": place.to_bytes(16, "big"),
            "error_text": str(place),
        }
        for place, one in enumerate(ids)
    ]
    books.run(lambda c: c.execute(tables.dead_letter.insert(), letters))

    found = groups(books)

    assert {(one.fingerprint, one.example.id, one.example.error) for one in found} == {
        (f"{place:032x}", f"k{place:04}", str(place)) for place in range(600)
    }


# ---- one task, one record


def test_a_story_has_everything(books: Books) -> None:
    """State, counters, dead letter with origin, attempts with cost, and the input's bytes."""
    body = bytes(range(256))
    (one,) = books.accept([new_task("kéy", body, b"\xff")], books.batch()).new.values()
    killed(books, one, RETRY)
    books.ago(tables.task.c.due_at, 1, one)
    killed(books, one, OTHER)
    books.set(tables.task, one, lease_losses=1, replays=2)

    found = books.run(lambda c: history.story(c, GROUP, BATCH, "kéy"))

    assert found is not None
    assert (found.number, found.status, found.input, found.raw_key) == (
        one,
        Status.DEAD,
        body,
        b"\xff",
    )
    assert (found.attempts, found.max_attempts, found.lease_losses, found.replays, found.fence) == (
        2,
        5,
        1,
        2,
        1,
    )
    assert [
        (each.attempt, each.fence, each.outcome, each.error_class) for each in found.history
    ] == [
        (1, 0, "retry", "SERVER"),
        (2, 1, "dead", "TOO_LONG"),
    ]
    assert {
        (each.trace_id, each.duration_ms, each.tokens_in, each.tokens_out, each.cost_micro)
        for each in found.history
    } == {("trace", 1500, 10, 5, 300)}
    assert found.letter is not None
    assert (found.letter.fence, found.letter.disposition, found.letter.error) == (
        1,
        "permanent",
        "9000 tokens are too many",
    )
    assert (
        found.letter.origin_topic,
        found.letter.origin_partition,
        found.letter.origin_offset,
    ) == ("group.tasks", 3, 17)
    assert (found.result, found.expires_at) == (None, None)


def test_a_story_of_a_task_that_is_not_dead(books: Books) -> None:
    """A task that is not dead is shown without a dead letter, with its result."""
    (one,) = books.load("a")
    killed(books, one, SUCCEEDED)

    found = books.run(lambda c: history.story(c, GROUP, BATCH, "a"))

    assert found is not None
    assert (found.letter, found.status, found.attempts, found.history) == (
        None,
        Status.SUCCEEDED,
        1,
        (),
    )
    assert found.result is not None
    assert (found.result.model, found.result.tokens_in, found.result.cost_micro) == (
        "model",
        10,
        300,
    )


def test_a_name_may_be_in_several_batches(books: Books) -> None:
    """The batch tells them apart; another group's tasks are not shown."""
    dead(books, "a", into="one")
    books.load("a", into="two")
    books.load("a", into="theirs", group="other")

    def states(key: str, batch: str | None = None) -> list[tuple[str, Status]]:
        return books.run(lambda c: history.states(c, GROUP, key, batch))

    assert states("a") == [("one", Status.DEAD), ("two", Status.PENDING)]
    assert states("a", "two") == [("two", Status.PENDING)]
    assert states("A") == states("a", "theirs") == []
    assert books.run(lambda c: history.story(c, GROUP, "theirs", "a")) is None


def test_a_record_has_everything(books: Books) -> None:
    """Position, bytes, headers and reason are shown, and whether the value is whole."""
    small, large, empty = set_aside(
        books, b"\xff", b"x" * (quarantine.KEPT_BYTES + 1), None, headers=[("h", b"v")]
    )

    found, cut, none = (
        books.run(lambda c, one=one: history.record(c, GROUP, one)) for one in (small, large, empty)
    )

    assert found is not None
    assert (found.topic, found.partition, found.offset, found.key, found.value) == (
        "group.inbox",
        0,
        0,
        b"key",
        b"\xff",
    )
    assert (found.disposition, found.error_class, found.error, found.cut) == (
        "undecodable",
        "UNDECODABLE",
        "line is not JSON",
        False,
    )
    assert (found.headers, found.replayed_at, found.seen) == (b'[["h","v"]]', None, 1)
    assert cut is not None
    assert cut.cut
    assert none is not None
    assert none.value is None
    assert books.run(lambda c: history.record(c, "other", small)) is None
    assert books.run(lambda c: history.record(c, GROUP, 10**9)) is None

"""`replay` as a command: combinations of options that differ from each option alone."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import select, update

from docllm.producer.cli import replay
from docllm.producer.cli.parser import parser
from docllm.producer.ledger import tally
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.replay_progress import ReplayRequest
from docllm.producer.replay import runs
from docllm.producer.replay.runs import Cursor
from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.ledger.tables import batch, dead_letter, route_resume, task
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.sources import ledger_url
from docllm.schemas.task.states import Status
from tests.support.commands import config_of, run

GROUP = "docllm"
DIED = {
    "fence": 0,
    "disposition": "permanent",
    "error_class": "BAD_REQUEST",
    "fingerprint": bytes(16),
    "error_text": "no",
    "origin_topic": "docllm.tasks",
    "origin_partition": 0,
    "origin_offset": 0,
}


def interrupted(folder: Path, request: ReplayRequest) -> int:
    """Store a replay of which nothing is applied yet; return its number."""
    database = Database(ledger_url(config_of(folder)))
    with database.engine.begin() as connection:
        number = runs.begin(connection, GROUP, "ann", request)
        assert (
            runs.store(connection, group=GROUP, run_id=number, request=request, start=Cursor())
            is None
        )
    database.close()
    return number


def test_a_dry_run_of_resume_shows_the_run_that_would_continue(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run of --resume shows what would continue, and does not select everything.

    With `--resume` no selection is given.
    """
    number = interrupted(folder, ReplayRequest(Selection(cancelled=True, limit=2)))
    capsys.readouterr()

    assert run(folder, "replay", "--resume", "--dry-run") == 0

    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        f"replay {number} is unfinished and would continue: 2 of 2 left",
        "dry run: nothing is changed",
    ]


def test_a_dry_run_of_resume_reports_that_no_replay_is_unfinished(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run of --resume says if no replay is unfinished, as the resume does."""
    capsys.readouterr()

    assert run(folder, "replay", "--resume", "--dry-run") == 0

    assert capsys.readouterr().out.splitlines() == [
        "no replay is unfinished",
        "dry run: nothing is changed",
    ]


def all_dead(folder: Path) -> None:
    """Let the tasks die instead, each with its dead letter."""
    database = Database(ledger_url(config_of(folder)))
    with database.engine.begin() as connection:
        connection.execute(update(task).values(status=int(Status.DEAD)))
        for row in connection.execute(select(task.c.id, task.c.batch_id)).all():
            letter = DIED | {"task_id": row.id, "batch_id": row.batch_id}
            connection.execute(dead_letter.insert(), letter)
        letters = connection.execute(select(dead_letter)).mappings()
        tally.write(connection, [tally.died(dict(letter)) for letter in letters])
    database.close()


def test_the_dead_of_a_cancelled_batch_that_has_no_cancelled_task_can_be_replayed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dead tasks of a cancelled batch without cancelled tasks can be replayed.

    The batch was cancelled when all its tasks had died. The advice opens it, and the audit has it
    as a person's order.
    """
    all_dead(folder)
    assert run(folder, "replay", "--batch", "b", "--yes") == 0
    assert (
        "left: 3 dead in a cancelled, archived or purged batch; "
        "replay --cancelled --batch NAME opens a cancelled one again" in capsys.readouterr().out
    )

    assert run(folder, "replay", "--cancelled", "--batch", "b", "--dry-run") == 0
    assert "the batch has no cancelled task; it is opened again" in capsys.readouterr().out
    assert run(folder, "replay", "--cancelled", "--tenant", "default", "--batch", "b", "--yes") == 0
    assert "open" not in capsys.readouterr().out
    assert run(folder, "replay", "--cancelled", "--batch", "b", "--yes") == 0
    assert "batch b is open again" in capsys.readouterr().out
    assert run(folder, "replay", "--cancelled", "--batch", "b", "--yes") == 0
    assert "open" not in capsys.readouterr().out

    assert run(folder, "replay", "--batch", "b", "--yes") == 0
    assert "replay 1: 3 wait again" in capsys.readouterr().out


def waiting_for_long(folder: Path) -> list[str]:
    """Let the tasks wait for an hour after a refused call; return the routes that are resumed."""
    database = Database(ledger_url(config_of(folder)))
    with database.engine.begin() as connection:
        later = {"status": int(Status.PENDING), "due_at": utc_after(3600.0), "route": "slow"}
        connection.execute(update(task).values(later))
        connection.execute(update(batch).values(cancelled_at=None))
        resumed = connection.execute(select(route_resume.c.route)).scalars().all()
    database.close()
    return list(resumed)


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        (("--batch", "b"), True),
        (("--all",), True),
        (("--all", "--dry-run"), False),
        (("--disposition", "permanent"), False),
        (("--cancelled", "--batch", "b"), False),
        (("--type", "other"), False),
    ],
)
def test_a_replay_ends_long_waits_of_the_tasks_that_it_selects(
    folder: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str], *, ends: bool
) -> None:
    """A task that waits after a refused call is not dead, but is called again at once."""
    assert waiting_for_long(folder) == []

    assert run(folder, "replay", *options, *([] if "--dry-run" in options else ["--yes"])) == 0

    said = "3 tasks waited until" in (printed := capsys.readouterr().out)
    assert said == ("route slow: running agents call it again" in printed) == ends
    assert waiting_for_long(folder) == (["slow"] if ends else [])


@pytest.mark.parametrize("option", [("--rate", "5/s"), ("--cap", "3")])
@pytest.mark.parametrize(
    "mode", [("--resume",), ("--list",), ("--from-topic",), ("--from-topic", "letters")]
)
def test_a_rate_that_would_not_be_kept_is_refused(
    mode: tuple[str, ...], option: tuple[str, ...]
) -> None:
    """A rate that a replay would ignore is refused before anything is read.

    A resumed replay uses its stored rate, and dead letters are loaded without a rate limit.
    """
    options = parser().parse_args(["replay", *mode, *option])

    with pytest.raises(
        ConfigError, match=rf"^{mode[0]} takes no other options, because .*; leave out {option[0]}$"
    ):
        asyncio.run(replay.replay(Config(), options))

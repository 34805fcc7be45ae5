"""Suspects that end their own processes: what the settle of such an attempt writes."""

from dataclasses import replace

import pytest

from docllm.agent.ledger.guards.loss_deaths import LOST_PER_WINDOW
from docllm.agent.ledger.recovery import reaping
from docllm.agent.ports import Verdict
from docllm.agent.ports.outcome import Dead, Failure, Outcome, Retry
from docllm.schemas.ledger import tables
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.task.states import Status
from tests.contract.claims.test_reap import lose, reap_orphans, run_by
from tests.support.ledger_database import GROUP, SPENT, LedgerDatabase

ENDED = Failure(ErrorClass.WORKER_LOST, "then its process ended by SIGSEGV", keeps_losses=True)
DIED = Dead(ENDED, SPENT, Disposition.WORKER_LOST)
STUCK = Retry(replace(ENDED, error_class=ErrorClass.HANDLER), SPENT, "30s", 30.0)


def suspects(ledger_db: LedgerDatabase, *keys: str) -> list[int]:
    """Load tasks and lose them together in two agents."""
    ids = ledger_db.load(*keys)
    for _ in range(2):
        lease = ledger_db.agent()
        for task_id in ids:
            ledger_db.claimed(task_id, lease.next_owner())
        lose(ledger_db, lease)
        reap_orphans(ledger_db)
    return list(ids)


@pytest.mark.parametrize("outcome", [DIED, STUCK], ids=["died", "stuck"])
def test_a_suspect_without_an_end_of_its_own_stays_one(
    ledger_db: LedgerDatabase, outcome: Outcome
) -> None:
    """The next attempt has a process of its own again; other tasks of the settle forget theirs."""
    (task_id,) = suspects(ledger_db, "a")

    assert ledger_db.settled(task_id, outcome) is Verdict.SETTLED

    assert ledger_db.task(task_id).lease_losses == 2
    assert ledger_db.task(task_id).attempt == 1
    assert ledger_db.count(tables.task_loss) == 2


def test_the_losses_beside_a_suspect_that_died_are_taken_back(ledger_db: LedgerDatabase) -> None:
    """The suspect is the one that has ended the agents of the others."""
    culprit, beside = suspects(ledger_db, "culprit", "beside")

    ledger_db.settled(culprit, DIED)
    taken_back = ledger_db.call(reaping.undo_losses, GROUP)

    assert taken_back == 2
    assert ledger_db.task(beside).lease_losses == 0
    assert ledger_db.status(culprit) == Status.DEAD
    (letter,) = ledger_db.rows(tables.dead_letter)
    assert (letter.error_class, letter.disposition) == ("WORKER_LOST", "worker_lost")


def test_a_release_that_ends_every_process_kills_ten_tasks(ledger_db: LedgerDatabase) -> None:
    """The other tasks wait behind a guard, as they do when their agents are lost."""
    lease = ledger_db.agent()
    claims = run_by(ledger_db, lease, *map(str, range(LOST_PER_WINDOW + 2)), losses=2)

    verdicts = [ledger_db.settle(row, owner, DIED) for row, owner in claims]

    assert verdicts == [Verdict.SETTLED] * LOST_PER_WINDOW + [Verdict.HELD_BACK] * 2
    (guard,) = ledger_db.rows(tables.guard)
    assert (guard.route, guard.cause, guard.opened_at) == ("", "worker_lost", None)
    held_back = ledger_db.task(claims[-1][0].task_id)
    assert (held_back.status, held_back.lease_losses) == (Status.RETRYING, 2)
